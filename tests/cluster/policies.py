from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.cluster.kube import Kubectl


@contextmanager
def a_policy(kubectl: Kubectl, name: str, *, machines: Mapping[str, str] | None = None, namespace: str = "", **spec: Any) -> Iterator[None]:
    selectors: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace or kubectl.namespace}}}
    if machines is not None:
        selectors["virtualMachineSelector"] = {"matchLabels": dict(machines)}
    kubectl.api.apply(
        {
            "apiVersion": "kubevirt.io/v1alpha1",
            "kind": "MigrationPolicy",
            "metadata": {"name": name},
            "spec": {"selectors": selectors, **spec},
        }
    )
    try:
        yield
    finally:
        kubectl.api.delete("migrationpolicy", name, timeout=30)
