from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.lines import one_line
from apiserver.apis.virt.places import fencing, node_states
from apiserver.kubectl import fencing_plan

NOW = "2026-01-01T00:00:00Z"


def node(ready: str | None = "Unknown") -> dict[str, Any]:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    other = {"key": "other", "effect": "NoSchedule"}
    return {"metadata": {"name": "node1", "annotations": {"a": "b"}}, "spec": {"taints": [other]}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("found", "said"),
    [(node(), ""), (node(None), ""), (node("True"), "Ready is True"), (node("False"), "Ready is False"), (None, "not found")],
)
def test_a_node_that_reports_cannot_be_called_off(found: dict[str, Any] | None, said: str) -> None:
    refusal = fencing_plan.refusal(found, "node1")
    assert bool(refusal) == bool(said)
    assert said in refusal


def lease(time: str) -> dict[str, Any]:
    return {"spec": {"renewTime": time}}


def test_a_renewed_new_or_deleted_lease_is_named() -> None:
    before = {"ns/a": lease("1"), "ns/b": lease("1")}
    assert fencing_plan.renewed(before, before) == ""
    assert fencing_plan.renewed(before, {**before, "ns/b": lease("2")}) == "ns/b"
    assert fencing_plan.renewed({"ns/a": lease("1")}, before) == fencing_plan.renewed(before, {"ns/a": lease("1")}) == "ns/b"


def test_fence_adds_one_taint_and_unfence_restores_the_node() -> None:
    once = fencing.fenced(node(), "jane", NOW)
    twice = fencing.fenced(once, "jane", NOW)
    assert once == twice
    taint = {
        "key": "node.kubernetes.io/out-of-service",
        "value": "nodeshutdown",
        "effect": "NoExecute",
        "timeAdded": NOW,
    }
    assert once["spec"]["taints"] == [{"key": "other", "effect": "NoSchedule"}, taint]
    assert once["metadata"]["annotations"] == {"a": "b", "kubevirt.io/fenced-by": f"jane at {NOW}"}
    assert fencing.unfenced(once) == node()


def test_a_fence_names_the_boot_that_it_is_about() -> None:
    boot = "6f1c2d3e-0000-4000-8000-000000000001"
    once = fencing.fenced({**node(), "status": {"nodeInfo": {"bootID": boot}}}, "jane", NOW)
    assert once["spec"]["taints"][-1]["value"] == f"nodeshutdown-boot-{boot}"
    assert (node_states.is_fenced(once), node_states.has_off_taint(once)) == (True, True)
    again = {**once, "status": {"nodeInfo": {"bootID": boot.replace("1", "2")}}}
    assert (node_states.is_fenced(again), node_states.has_off_taint(again)) == (False, True)
    twice = fencing.fenced(again, "jane", NOW)
    assert (node_states.is_fenced(twice), len(twice["spec"]["taints"])) == (True, 2)
    assert fencing.ended_boot(once) == "", "only a person unfences it"


@pytest.mark.parametrize("value", ["", "nodeshutdown", "boot-failure", "boot-"])
def test_a_taint_without_a_boot_counts_for_every_boot(value: str) -> None:
    found = {"spec": {"taints": [{"key": node_states.OFF_TAINT, "value": value}]}, "status": {"nodeInfo": {"bootID": "0" * 32}}}
    assert node_states.is_fenced(found)


def test_question_names_the_machines_up_to_a_limit() -> None:
    text = fencing_plan.question("node1", [f"ns/vm{each}" for each in range(25)])
    assert "25 virtual machines" in text
    assert "ns/vm9, and 15 more." in text
    assert "It had 0 virtual machines." in fencing_plan.question("node1", [])
    assert "more" not in fencing_plan.question("node1", [f"ns/vm{each}" for each in range(fencing_plan.LISTED)])
    assert "Its virtual machines are unknown." in fencing_plan.question("node1", None)


def test_a_status_in_the_refusal_is_short() -> None:
    assert f"(Ready is {one_line('x' * 30, 20)})" in fencing_plan.refusal(node("x" * 30), "node1")


@pytest.mark.parametrize(("reason", "kind"), [("NodeFenced", "Warning"), ("NodeUnfenced", "Normal")])
def test_an_event_names_the_node(reason: str, kind: str) -> None:
    found = fencing_plan.event({"metadata": {"name": "n" * 253, "uid": "u"}}, reason, "message", NOW)
    assert (found["type"], found["reason"], found["count"]) == (kind, reason, 1)
    assert found["metadata"] == {"generateName": f"{'n' * 200}.", "namespace": "default"}
