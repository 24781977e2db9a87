from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.places import names
from controller.reconcilers.launcher_pods import scheduling
from controller.reconcilers.migrations import unschedulable
from tests.unit.controller.reconcilers.builders import a_migration, a_pod, a_vm

INCOMPATIBLE = {
    "node2": (
        "node node2 cannot run guests: its virt-handler uses version 2 of the node protocol, but virt-controller "
        "uses 1; upgrade both to the same version"
    )
}


def told(selector: dict[str, str] | None = None, message: str = "", incompatible: dict[str, str] | None = None, **vm: Any) -> list[str]:
    migration = a_migration(phase="Scheduling", sourceNode="node1", message=message)
    if selector is not None:
        migration["spec"]["nodeSelector"] = selector
    return list(unschedulable.reasons(migration, a_vm(phase="Running", **vm), a_pod(migration="m", node=""), incompatible or {}))


def test_a_selector_of_the_migration_is_named() -> None:
    said = "the Migration requires a node other than node1, where the guest runs, with disk=ssd, zone=b: see kubectl get nodes"
    assert told({"zone": "b", "disk": "ssd"}) == [said]
    assert told({"zone": "b", "disk": "ssd"}, nodeSelector={names.HOSTNAME_LABEL: "node1"}) == [said]
    assert told({}) == told() == []


def test_a_selector_of_any_length_is_told_in_short() -> None:
    (said,) = told({f"label{number}": "v" * 60 for number in range(32)})
    assert len(said) < 2 * scheduling.MAX_SELECTOR


@pytest.mark.parametrize("key", [names.HOSTNAME_LABEL, names.HOSTNAME_SELECTOR])
def test_a_machine_that_asks_for_the_node_it_is_on_says_so(key: str) -> None:
    said = "spec.nodeSelector of the virtual machine selects node1, the guest's present node, but a migration needs another node"
    assert told(nodeSelector={key: "node1"}) == [said]
    assert told(nodeSelector={key: "node2"}) == told(nodeSelector={"zone": "node1"}) == []


def test_pod_made_for_fewer_nodes_says_so_when_more_return() -> None:
    first = told(incompatible=INCOMPATIBLE)
    assert first == [INCOMPATIBLE["node2"], unschedulable.LEFT_OUT]
    assert told(message="; ".join(("pod p: 0/2 nodes are available", *first))) == [unschedulable.LEFT_OUT]
    assert told(message="pod p: 0/2 nodes are available") == []


def test_without_a_machine_the_migration_is_told_of() -> None:
    migration = a_migration(phase="Scheduling", sourceNode="node1")
    assert list(unschedulable.reasons(migration, None, a_pod(migration="m", node=""), {})) == []
