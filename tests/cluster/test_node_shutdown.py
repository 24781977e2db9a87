"""Graceful node shutdown by the real kubelet and a partial logind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object
from tests.cluster import losses
from tests.cluster.api import is_true
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import blank_disk, claim_disk, linux_vm, shared_claim, tiny_vm, with_disks
from tests.damage import never_again
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import layout, logind, nodes
from tests.testbed.logind import Logind

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="restarts kubelets of this machine, and says that a node is off"),
]

SETTINGS = {"shutdownGracePeriod": "120s", "shutdownGracePeriodCriticalPods": "30s"}
"""docs/operating/nodes.md, with more time for emulated guests."""
DEAF_SECONDS = 20
"""Grace period of a guest that ignores power button and agent."""


@contextmanager
def delaying_shutdowns(system: Kubectl, node: layout.Node) -> Iterator[Logind]:
    with logind.running(nodes.root_of(node)) as service:
        try:
            nodes.restart_kubelet(node, **SETTINGS)
            assert service.inhibited.wait(180), "the kubelet delays no shutdown"
            system.api.ready("node", node.name, timeout=120)
            yield service
        finally:
            nodes.restart_kubelet(node)
            system.api.ready("node", node.name, timeout=90)
            system.api.rolled_out("daemonset/virt-handler", "deployment/virt-api", "deployment/virt-controller", timeout=300)
            for namespace in (system.namespace, "kube-system"):
                for phase in ("Succeeded", "Failed"):
                    chosen = f"--field-selector=spec.nodeName={node.name},status.phase={phase}"
                    system.within(namespace)("delete", "pods", chosen, "--ignore-not-found", timeout=120)


@contextmanager
def cordoned(system: Kubectl, node: str) -> Iterator[None]:
    system.api.patch("node", node, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        system.api.patch("node", node, {"spec": {"unschedulable": None}})


def runs_on(kubectl: Kubectl, name: str, node: str) -> Object:

    def is_so(vm: Object) -> bool:
        return (vm["status"]["phase"], vm["status"].get("nodeName")) == ("Running", node)

    return kubectl.api.until("vm", name, is_so, timeout=150, what=f"{name} runs on {node}")


def ends_asked_for(kubectl: Kubectl, pod: str) -> list[str]:
    found = kubectl.api.list("events", field_selector=f"reason=Killing,involvedObject.name={pod}")
    return [each["firstTimestamp"] or each["eventTime"] for each in found]


def test_guests_end_first_on_node_shutdown_and_start_elsewhere(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    node, etcd = losses.other_than_etcds(system)
    handler = losses.handler_of(system, node)
    kubectl.api.apply(shared_claim("orderly"), blank_disk("orderly"))
    kubectl.api.until("jobs", "make-orderly", is_true("Complete"), timeout=120, what="the disk of claim orderly")
    with cordoned(system, etcd):
        kubectl.api.create(with_disks(linux_vm("orderly", terminationGracePeriodSeconds=100), claim_disk("orderly")))
        kubectl.api.create(tiny_vm("deaf", run="deaf", terminationGracePeriodSeconds=DEAF_SECONDS))
        for name in ("orderly", "deaf"):
            kubectl.api.ready("vm", name, timeout=300)
    watched = losses.runs_once(*(f"{kubectl.namespace}_{each}" for each in ("orderly", "deaf")))
    with watched, delaying_shutdowns(system, node) as service:
        with console(kubectl, "orderly") as guest:
            guest.expect("GUEST-READY", timeout=180)
            guest.run("exec 3<>/dev/vda; echo not-yet-on-the-disk >&3")  # written only at a clean power-off
            begun = datetime.now(UTC)
            service.prepare_for_shutdown(True)
            guest.expect("Power down", timeout=60)
        assert service.released.wait(160), "the kubelet delays the shutdown still"
        for name in ("orderly", "deaf"):
            runs_on(kubectl, name, etcd)
        with console(kubectl, "orderly") as guest:
            guest.expect("GUEST-READY", timeout=180)
            with never_again("a lost write"):
                assert "not-yet-on-the-disk" in guest.run("head -c 19 /dev/vda")
    assert [len(kubectl.api.get("vm", name)["status"]["attempts"]) for name in ("orderly", "deaf")] == [2, 2]
    told = ends_asked_for(system, handler["metadata"]["name"])
    assert told
    # Pods without a priority end first.
    assert min(map(times.parse, told)) >= begun + timedelta(seconds=DEAF_SECONDS - 1)
