"""Lost nodes: one without power, which a person fences, and one that is cut off, which a fence agent switches off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from apiserver.apis.meta.objects import Object, condition
from tests.cluster import processes
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import tiny_vm
from tests.cluster.test_node_shutdown import cordoned, runs_on
from tests.component.handler.tls import Authority
from tests.fakes import board
from tests.fakes.board import Board
from tests.testbed import layout, nodes, release
from tests.testbed import processes as programs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


AGENT = layout.REPOSITORY / "examples" / "fence_agents" / "redfish.py"


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


@contextmanager
def fence_agent(system: Kubectl, directory: Path, made: Board, node: str) -> Iterator[None]:
    """Serve a node's board, and install the chart with the example's agent."""
    files = Authority(directory).board(layout.CONTROL_PLANE_ADDRESS)
    with board.serving(made, files.certificate, files.key, "secret", layout.CONTROL_PLANE_ADDRESS) as address:
        data = directory / "nodes.json"
        data.write_text(json.dumps({node: {"system": address, "user": "fence", "password": "secret"}}))
        system("create", "configmap", "fence-agents", f"--from-file={AGENT}")
        system("create", "secret", "generic", "boards", f"--from-file={data}", f"--from-file=ca.crt={files.authorities}")
        volume = "fencing.volume.configMap"
        try:
            release.install(
                f"fencing.agent={AGENT.name}", f"{volume}.name=fence-agents", f"{volume}.defaultMode=365", "fencing.secret=boards"
            )
            yield
        finally:
            release.install()
            system("delete", "configmap/fence-agents", "secret/boards")


def test_an_agent_switches_a_cut_off_node_off_before_the_restart(
    kubectl: Kubectl, system: Kubectl, testguest: None, tmp_path: Path
) -> None:
    etcd = system.api.get("pod", "kubevirt-etcd-0")["spec"]["nodeName"]
    (node,) = (each for each in layout.NODES if each.name != etcd)
    guests: list[Object] = []
    lived: list[bool] = []

    def power_off() -> None:
        for pod in guests:
            lived.append(any("qemu-system" in each for each in processes.of_pod(pod).values()))
            processes.kill(pod)

    made = Board(power_off, reads_until_off=2)
    with fence_agent(system, tmp_path, made, node.name):
        with cordoned(system, etcd):
            kubectl.api.create(tiny_vm("cut-off"))
            machine = kubectl.api.ready("vm", "cut-off", timeout=300)
        guests.append(kubectl.api.get("pod", machine["status"]["podName"]))
        with without_power(system, node):
            runs_on(kubectl, "cut-off", etcd)
            assert (lived, made.resets) == ([True], ["ForceOff"])
            fenced = system.api.get("node", node.name)["metadata"]["annotations"]["kubevirt.io/fenced-by"]
            assert fenced.startswith(f"virt-controller with {AGENT.name} at ")
    assert [each.get("nodeName") for each in kubectl.api.get("vm", "cut-off")["status"]["attempts"]] == [node.name, etcd]
