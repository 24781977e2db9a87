from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from apiserver.apis.virt.places import names
from controller.evictions import places
from controller.evictions.places import CLUSTER, Places
from controller.reconcilers.migrations.migration_bounds import SOURCE_UNKNOWN
from tests.unit.controller.evictions.test_eviction_plan import NOW

WAITING = {"node1": frozenset({"ours", "others"})}


@pytest.mark.parametrize(
    ("limit", "ours", "others", "expected"),
    [
        (4, 1, 0, False),
        (4, 2, 0, True),
        (4, 2, 1, True),
        (4, 2, 2, False),
        (4, 3, 0, True),
        (3, 1, 0, True),
        (3, 1, 1, False),
        (1, 0, 0, False),
    ],
)
def test_next_place_is_anothers_once_half_of_them_are_ours(limit: int, ours: int, others: int, *, expected: bool) -> None:
    there = Places("node1", limit, Counter(ours=ours, others=others))
    assert there.are_others("ours", WAITING) is expected


def test_namespace_waiting_at_another_node_reserves_no_place() -> None:
    assert not Places("node2", 4, Counter(ours=2)).are_others("ours", WAITING)


def evacuation(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ours", "labels": {"kubevirt.io/evicted-pod": "pod-1"}},
        "status": {"phase": "Running", "sourceNode": "node1", **status},
    }


def test_migration_from_a_silent_node_frees_its_place() -> None:
    lost = {"type": "Succeeded", "status": "Unknown", "reason": SOURCE_UNKNOWN}
    found = places.found([evacuation(), evacuation(conditions=[lost])], "node1", 2, 9, NOW)
    assert [(each.where, each.limit, each.taken["ours"]) for each in found] == [("node1", 2, 1), (CLUSTER, 9, 1)]


def test_upgrade_migrations_take_no_eviction_places() -> None:
    upgrade = evacuation()
    upgrade["metadata"]["labels"] = {names.WORKLOAD_UPDATE_LABEL: "x"}
    assert [each.taken.total() for each in places.found([upgrade, evacuation()], "node1", 2, 9, NOW)] == [1, 1]
