"""A node without power: its kubelet, its virt-handler and its guest end at once, and a person fences it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from apiserver.apis.meta.objects import Object, condition
from tests.cluster import processes
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import tiny_vm
from tests.cluster.test_node_shutdown import cordoned, runs_on
from tests.testbed import layout, nodes
from tests.testbed import processes as programs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@contextmanager
def without_power(system: Kubectl, node: layout.Node, *guests: Object) -> Iterator[None]:
    """End the kubelet, and then the processes of virt-handler and of these pods of guests."""
    (handler,) = system.api.list("pods", field_selector=f"spec.nodeName={node.name}", label_selector="kubevirt.io=virt-handler")
    programs.end([f"{node.name}-kubelet"])
    try:
        for pod in (handler, *guests):
            processes.kill(pod)
        yield
    finally:
        nodes.start_kubelet(node)
        system.api.ready("node", node.name, timeout=120)
        system("virt", "unfence", node.name)
        for each in ("daemonset/virt-handler", "deployment/virt-api", "deployment/virt-controller"):
            system("rollout", "status", each, "--timeout=300s", timeout=310)


def test_a_machine_restarts_after_a_person_fences_its_node(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    etcd = system.api.get("pod", "kubevirt-etcd-0")["spec"]["nodeName"]
    (node,) = (each for each in layout.NODES if each.name != etcd)
    with cordoned(system, etcd):
        kubectl.api.create(tiny_vm("lost"))
        kubectl.api.create(tiny_vm("kept", onNodeLoss="Wait"))
        machines = [kubectl.api.ready("vm", name, timeout=300) for name in ("lost", "kept")]
        pods = [kubectl.api.get("pod", each["status"]["podName"]) for each in machines]
    refused = kubectl.try_run("virt", "fence", node.name, "--off", "--yes")
    assert refused.returncode == 1
    assert "so the node is on" in refused.stderr
    with without_power(system, node, *pods):
        unknown = kubectl.api.until("vm", "lost", lambda vm: vm["status"]["phase"] == "Unknown", timeout=180, what="phase Unknown")
        assert f"kubectl virt fence {node.name} --off" in (condition(unknown["status"]["conditions"], "Ready") or {})["message"]
        (line,) = (each for each in kubectl("virt", "nodes").splitlines() if each.startswith(f"{node.name} "))
        assert line.split()[1] == "Unreachable"
        assert "fenced" in kubectl("virt", "fence", node.name, "--off", "--yes")
        runs_on(kubectl, "lost", etcd)
        kubectl.api.until("vm", "kept", lambda vm: vm["status"]["phase"] == "Failed", timeout=120, what="the end of the attempt")
    attempts = kubectl.api.get("vm", "lost")["status"]["attempts"]
    assert [each.get("nodeName") for each in attempts] == [node.name, etcd]
    kept = kubectl.api.get("vm", "kept")["status"]
    assert len(kept["attempts"]) == 1
    assert "kubectl virt start" in (condition(kept["conditions"], "Stalled") or {})["message"]
