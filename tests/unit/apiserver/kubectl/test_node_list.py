from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.kubectl import node_list

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
FRESH = "2026-01-01T00:00:55.000000Z"
OLD = "2026-01-01T00:00:10.000000Z"
TAINT = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}


def node(ready: str = "True", **spec: Any) -> dict[str, Any]:
    labels = {"host-model-cpu.node.kubevirt.io/EPYC": "true", "cpu-model.node.kubevirt.io/EPYC-Rome": "true"}
    return {
        "metadata": {"name": "node1", "labels": labels},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready, "message": "runtime is down\n"}]},
    }


def lease(renewed: str = FRESH) -> dict[str, Any]:
    annotations = {"kubevirt.io/acceleration": "kvm: the device works"}
    return {
        "metadata": {"name": "virt-handler-node1", "annotations": annotations},
        "spec": {"renewTime": renewed, "leaseDurationSeconds": 40},
    }


@pytest.mark.parametrize(
    ("found", "renewed", "word", "reason"),
    [
        (node(), FRESH, "Ready", ""),
        (node(unschedulable=True), FRESH, "Draining", "cordoned"),
        (node("False"), FRESH, "NotReady", "runtime is down"),
        (node(), OLD, "NoHandler", OLD),
        (node(), None, "NoHandler", "does not run"),
        (node("Unknown"), FRESH, "Unreachable", "the node is on"),
        (node("Unknown"), OLD, "Unreachable", "kubectl virt fence node1 --off"),
        (node("Unknown"), None, "Unreachable", "kubectl virt fence node1 --off"),
        (node("Unknown", taints=[TAINT]), OLD, "Off", "fenced"),
        (node("Unknown", taints=[TAINT | {"value": f"boot-{'a' * 32}"}]), OLD, "Unreachable", "kubectl virt fence node1 --off"),
        (node("Unknown", taints=[TAINT]), FRESH, "Unreachable", "the node is on"),
        (node(taints=[TAINT]), FRESH, "Fenced", "kubectl virt unfence node1"),
        (node(), "yesterday", "NoHandler", "yesterday"),
    ],
)
def test_state_of_a_node(found: dict[str, Any], renewed: str | None, word: str, reason: str) -> None:
    state = node_list.state_of(found, None if renewed is None else lease(renewed), NOW)
    assert state.word == word
    assert reason in state.reason


def test_row_has_the_acceleration_and_the_host_model() -> None:
    other = {**node(), "metadata": {"name": "a"}}
    machines = [{"metadata": {"name": name, "namespace": "ns"}, "status": {"nodeName": "node1"}} for name in "abc"]
    rows = node_list.rows([node(), other], {"virt-handler-node1": lease()}, machines, NOW)
    assert rows[0][:3] == ("a", "NoHandler", "0")
    assert rows[1] == ("node1", "Ready", "3", "kvm", "EPYC", "")


def test_a_node_where_starts_fail_is_non_operational() -> None:
    attempts = [
        {"number": 1, "nodeName": "node1", "result": "Failed", "endTime": "2026-01-01T00:00:30Z"},
        {"number": 2, "nodeName": "a", "runningTime": "2026-01-01T00:00:40Z"},
    ]
    machines = [{"metadata": {"name": name, "namespace": "ns"}, "status": {"nodeName": "a", "attempts": attempts}} for name in "abc"]
    other = {**node(), "metadata": {"name": "a"}}
    found = node_list.rows([node(), other], {"virt-handler-node1": lease()}, machines, NOW)
    assert found[1][1] == "NonOperational"
    assert str(found[1][-1]).startswith("3 virtual machines")
    later = node_list.rows(
        [node(), other], {"virt-handler-node1": lease("2026-01-01T00:11:55.000000Z")}, machines, NOW + timedelta(minutes=11)
    )
    assert later[1][1] == "Trial"
