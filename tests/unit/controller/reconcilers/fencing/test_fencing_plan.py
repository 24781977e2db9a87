from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from apiserver.apis.virt.places import fencing
from controller.reconcilers.fencing import fencing_plan
from controller.reconcilers.fencing.fencing_plan import Decision, Fence, Nothing, Observed, Refuse, Unfence, Wait, plan

NOW = "2026-01-01T00:00:00Z"
ONE = "6f1c2d3e-0000-4000-8000-000000000001"
TWO = "6f1c2d3e-0000-4000-8000-000000000002"


def node(ready: str = "Unknown", boot: str = ONE) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": ready}], "nodeInfo": {"bootID": boot}}
    return {"metadata": {"name": "node1"}, "spec": {}, "status": status}


def fenced(by: str, ready: str, boot: str) -> dict[str, Any]:
    """Return a Node that was fenced by a person or the agent during boot ONE, as it is now."""
    return {**fencing.fenced(node(), by, NOW, until_restart=by == "agent"), "status": node(ready, boot)["status"]}


UNREACHABLE = Observed(node(), reports_for=0.0, unreachable_for=10.0, waiting=1, unreachable=1, nodes=3, delay=10.0)


@pytest.mark.parametrize(
    ("changes", "decision"),
    [
        ({}, Fence()),
        ({"reports_for": None}, Nothing()),
        ({"reports_for": 7.0}, Wait(7.0)),
        ({"waiting": 0}, Wait(fencing_plan.LOOK_SECONDS)),
        ({"unreachable_for": 4.0}, Wait(6.0)),
        ({"unreachable_for": 12.0}, Fence()),
        ({"unreachable": 1, "nodes": 2}, Fence()),
        ({"node": fenced("jane", "Unknown", ONE)}, Nothing()),
        ({"node": fenced("jane", "True", TWO), "reports_for": None}, Nothing()),
        ({"node": fenced("jane", "Unknown", TWO)}, Fence()),
        ({"node": fenced("agent", "Unknown", TWO)}, Fence()),
        ({"node": fenced("agent", "True", ONE)}, Nothing()),
        ({"node": fenced("agent", "True", TWO)}, Unfence()),
    ],
)
def test_unreachable_node_is_fenced_and_its_start_unfences_it(changes: dict[str, Any], decision: Decision) -> None:
    assert plan(dataclasses.replace(UNREACHABLE, **changes)) == decision


@pytest.mark.parametrize(("before", "now", "restarted"), [(TWO, ONE, True), (ONE, "", False), (ONE, ONE, False)])
def test_another_boot_is_a_restart(before: str, now: str, restarted: bool) -> None:
    by_agent = fencing.fenced(node(boot=before), "agent", NOW, until_restart=True)
    assert fencing_plan.has_restarted({**by_agent, "status": node("True", now)["status"]}) == restarted


@pytest.mark.parametrize(("unreachable", "nodes"), [(2, 3), (1, 1), (3, 5)])
def test_unreachability_of_most_nodes_is_a_fault_of_the_network(unreachable: int, nodes: int) -> None:
    decision = plan(dataclasses.replace(UNREACHABLE, unreachable=unreachable, nodes=nodes))
    assert isinstance(decision, Refuse)
    assert decision.message.startswith(f"{unreachable} of {nodes} nodes")
    assert "kubectl virt fence node1 --off" in decision.message


@pytest.mark.parametrize(("after", "speaks"), [(node(), False), (node("True"), True), (node("False"), True), (node("True", TWO), False)])
def test_a_kubelet_of_the_same_boot_contradicts_the_agent(after: dict[str, Any], speaks: bool) -> None:
    assert bool(fencing_plan.contradiction(node(), after)) == speaks
    assert not fencing_plan.contradiction(node(boot=TWO), node("True", ONE))


def machine(node_name: str = "node1", **spec: Any) -> dict[str, Any]:
    attempts = [{"number": 1, "podName": "p"}]
    return {"spec": {"runStrategy": "Always", **spec}, "status": {"nodeName": node_name, "podUID": "u", "attempt": 1, "attempts": attempts}}


def test_only_machines_that_restart_elsewhere_need_a_fence() -> None:
    assert fencing_plan.restarts_elsewhere(machine(), "node1")
    assert not any(fencing_plan.restarts_elsewhere(machine(each), "node1") for each in ("node0", "node2"))
    without_pod = machine()
    without_pod["status"]["podUID"] = ""
    assert not fencing_plan.restarts_elsewhere(without_pod, "node1")
    assert not fencing_plan.restarts_elsewhere(machine(onNodeLoss="Wait"), "node1")
    assert not fencing_plan.restarts_elsewhere(machine(runStrategy="Halted"), "node1")
    assert fencing_plan.count_waiting([machine(), machine("node2"), machine()], "node1") == 2


@pytest.mark.parametrize(
    ("phase", "status", "node_name", "waits"),
    [
        ("Failed", "True", "node1", True),
        ("Scheduling", "False", "node1", True),
        ("Scheduling", "False", "node2", False),
        ("Scheduling", "False", "node0", False),
        ("Scheduling", "", "node1", False),
        ("Running", "False", "node1", False),
    ],
)
def test_a_sealed_machine_needs_a_fence_for_its_disks(phase: str, status: str, node_name: str, waits: bool) -> None:
    """The seal came before the agent's call, and Kubernetes detaches the disks of a node that is fenced."""
    vm = machine("")
    lost = [{"number": 1, "podName": "p", "nodeName": node_name, "result": "Failed"}]
    vm["status"] |= {"phase": phase, "attempt": 2, "attempts": [*lost, {"number": 2, "podName": "q"}]}
    vm["status"]["conditions"] = [{"type": "NodeLost", "status": status}] if status else []
    assert fencing_plan.restarts_elsewhere(vm, "node1") == waits


@pytest.mark.parametrize(("ended", "waits"), [([], False), (["node2", "node1"], True)])
def test_disks_wait_on_the_node_of_the_last_attempt(ended: list[str], waits: bool) -> None:
    vm = machine("")
    attempts = [{"number": number, "podName": "p", "nodeName": each, "result": "Failed"} for number, each in enumerate(ended, 1)]
    vm["status"] |= {"phase": "Scheduling", "attempt": 3, "attempts": [*attempts, {"number": 3, "podName": "q"}]}
    vm["status"]["conditions"] = [{"type": "NodeLost", "status": "False"}]
    assert fencing_plan.restarts_elsewhere(vm, "node1") == waits


def test_unfencing_restores_the_node() -> None:
    assert fencing.unfenced(fenced("agent", "Unknown", ONE)) == {
        **node(),
        "metadata": {"name": "node1", "annotations": {}},
        "spec": {"taints": []},
    }


def test_only_the_taint_says_which_boot_has_ended() -> None:
    """A kubelet can write its own Node's annotations, and report any boot ID."""
    by_person = fenced("jane", "True", TWO)
    by_person["metadata"]["annotations"]["kubevirt.io/fenced-boot-id"] = ONE
    assert not fencing_plan.has_restarted(by_person)
    assert fencing.ended_boot(fenced("agent", "True", TWO)) == ONE
    hostile = fencing.fenced(node(boot="x" * 70), "agent", NOW, until_restart=True)
    assert (fencing.ended_boot(hostile), hostile["spec"]["taints"][0]["value"]) == ("", "nodeshutdown")


@pytest.mark.parametrize(
    ("found", "waiting", "interests"),
    [(node(), 1, True), (node(), 0, False), (node("True"), 1, False), (fenced("agent", "True", TWO), 0, True)],
)
def test_nodes_without_anything_to_do_are_left_alone(found: dict[str, Any], waiting: int, interests: bool) -> None:
    assert fencing_plan.is_of_interest(found, waiting) == interests
