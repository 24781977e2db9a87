"""The common, immutable shape of all launcher pods.

virt-controller makes and adopts only such pods (``controller.reconcilers.pods.ownership``), and the chart's policy lets it create and
delete no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta.objects import name_of
from apiserver.apis.virt.places import layout, names

PREFIX: Final = f"{names.LAUNCHER}-"
SPEC: Final[Mapping[str, Any]] = MappingProxyType({"automountServiceAccountToken": False, "restartPolicy": "Never"})
VOLUMES: Final = ("emptyDir", "image", "persistentVolumeClaim", "projected")
PROJECTED: Final = ("secret", "configMap", "downwardAPI", "serviceAccountToken")


def fits(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod has the shape (name, spec) of a virt-launcher's pod."""
    spec: Mapping[str, Any] = pod.get("spec") or {}
    return (
        name_of(pod).startswith(PREFIX)
        and all(spec.get(field) == value for field, value in SPEC.items())
        and any(has_run_directory(each) for each in spec.get("containers") or () if each.get("name") == names.CONTAINER)
    )


def has_run_directory(container: Mapping[str, Any]) -> bool:
    """Return whether the container mounts virt-launcher's sockets, which no container of another pod does."""
    return any(each.get("mountPath") == layout.RUN_DIRECTORY for each in container.get("volumeMounts") or ())


def expression(pod: str) -> str:
    """Return :func:`fits` as a CEL expression; ``pod`` is CEL for the pod."""
    return (
        f"{pod}.metadata.name.startsWith('{PREFIX}') "
        f"&& {pod}.spec.?automountServiceAccountToken.orValue(true) == {str(SPEC['automountServiceAccountToken']).lower()} "
        f"&& {pod}.spec.restartPolicy == '{SPEC['restartPolicy']}' "
        f"&& {pod}.spec.containers.exists(each, each.name == '{names.CONTAINER}' "
        f"&& each.?volumeMounts.orValue([]).exists(mount, mount.mountPath == '{layout.RUN_DIRECTORY}'))"
    )
