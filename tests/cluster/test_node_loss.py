from __future__ import annotations

from pathlib import Path

import pytest

from apiserver.apis.meta.objects import Object, condition
from tests.cluster import losses, processes
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import tiny_vm
from tests.cluster.test_node_shutdown import cordoned, runs_on
from tests.fakes.board import Board
from tests.testbed import kubectl as testbed_kubectl

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="says that a node is off, which is true of the test bed's"),
]


def test_a_machine_restarts_after_a_person_fences_its_node(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    node, etcd = losses.other_than_etcds(system)
    with cordoned(system, etcd):
        kubectl.api.create(tiny_vm("lost"))
        kubectl.api.create(tiny_vm("kept", onNodeLoss="Wait"))
        machines = [kubectl.api.ready("vm", name, timeout=300) for name in ("lost", "kept")]
        pods = [kubectl.api.get("pod", each["status"]["podName"]) for each in machines]
    refused = kubectl.try_run("virt", "fence", node.name, "--off", "--yes")
    assert refused.returncode == 1
    assert "so the node is on" in refused.stderr
    watched = losses.runs_once(*(f"{kubectl.namespace}_{each}" for each in ("lost", "kept")))
    with watched, losses.without_kubelet(system, node, losses.handler_of(system, node), *pods):
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


def test_an_agent_switches_a_cut_off_node_off_before_the_restart(
    kubectl: Kubectl, system: Kubectl, testguest: None, tmp_path: Path
) -> None:
    node, etcd = losses.other_than_etcds(system)
    guests: list[Object] = []
    lived: list[bool] = []

    def power_off() -> None:
        for pod in guests:
            lived.append(any("qemu-system" in each for each in processes.of_pod(pod).values()))
            processes.kill(pod)

    made = Board(power_off, reads_until_off=2)
    with losses.fence_agent(system, tmp_path, made, node.name):
        with cordoned(system, etcd):
            kubectl.api.create(tiny_vm("cut-off"))
            machine = kubectl.api.ready("vm", "cut-off", timeout=300)
        guests.append(kubectl.api.get("pod", machine["status"]["podName"]))
        watched = losses.runs_once(f"{kubectl.namespace}_cut-off")
        with watched, losses.without_kubelet(system, node, losses.handler_of(system, node)):
            runs_on(kubectl, "cut-off", etcd)
            assert (lived, made.resets) == ([True], ["ForceOff"])
            fenced = system.api.get("node", node.name)["metadata"]["annotations"]["kubevirt.io/fenced-by"]
            assert fenced.startswith(f"virt-controller with {losses.AGENT.name} at ")
    assert [each.get("nodeName") for each in kubectl.api.get("vm", "cut-off")["status"]["attempts"]] == [node.name, etcd]
