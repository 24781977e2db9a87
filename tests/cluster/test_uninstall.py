"""The chart goes while machines run: in the right order, and nothing hangs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.kube import Kubectl
from tests.cluster.manifests import tiny_vm
from tests.testbed import release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_uninstalling_shuts_guests_down_and_leaves_a_cluster_that_works(kubectl: Kubectl, make_namespace: Any) -> None:
    inner = make_namespace("left-behind")
    inner.apply(tiny_vm("one"))
    inner("wait", "vm", "one", "--for=condition=Ready", "--timeout=90s", timeout=100)
    try:
        release.uninstall()

        assert inner.json("get", "pods")["items"] == []
        assert "kubevirt.io" not in inner("get", "apiservices", "-o", "name")
        assert inner.try_run("get", "namespace", release.NAMESPACE).returncode != 0
        inner("delete", "namespace", inner.namespace, "--timeout=60s", timeout=70)
    finally:
        release.install()
    again = make_namespace("again")
    again.apply(tiny_vm("two"))
    again("wait", "vm", "two", "--for=condition=Ready", "--timeout=90s", timeout=100)
