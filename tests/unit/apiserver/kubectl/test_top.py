from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.objects import NamespacedName
from apiserver.kubectl.top import Usage, Wanted, table, usage_of


def a_machine(name: str, namespace: str = "ns") -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}, "status": {"podName": f"pod-of-{name}"}}


MACHINES = [a_machine("web"), a_machine("db"), a_machine("new"), a_machine("app", "other")]
USAGE = {
    NamespacedName("ns", "pod-of-web"): Usage(1500, 300 << 20),
    NamespacedName("ns", "pod-of-db"): Usage(250, 900 << 20),
    NamespacedName("other", "pod-of-app"): Usage(1, 1 << 20),
    NamespacedName("other", "pod-of-new"): Usage(9999, 1),
}


def test_use_is_that_of_all_containers() -> None:
    containers = [{"usage": {"cpu": "1250900000n", "memory": "300Mi"}}, {"usage": {"cpu": "5m", "memory": "1024Ki"}}, {}]
    assert usage_of({"containers": containers}) == Usage(1256, 301 << 20)
    assert usage_of({}) == Usage(0, 0)
    assert usage_of({"containers": [{"usage": {"cpu": "5 m", "memory": "1Mi"}}]}) is None
    assert usage_of({"containers": [{"usage": {"cpu": "5m", "memory": None}}]}) is None


@pytest.mark.parametrize(
    ("sort_by", "order"),
    [("", ["db", "new", "web", "app"]), ("cpu", ["web", "db", "app", "new"]), ("memory", ["db", "web", "app", "new"])],
)
def test_machines_are_sorted_by_name_or_the_largest_first(sort_by: str, order: list[str]) -> None:
    assert [row[1] for row in table(MACHINES, USAGE, Wanted(all_namespaces=True, sort_by=sort_by, headers=False))] == order


@pytest.mark.parametrize("usage", [USAGE, {**USAGE, NamespacedName("ns", "pod-of-new"): None}])
def test_a_guest_without_valid_metrics_is_listed(usage: dict[NamespacedName, Usage | None]) -> None:
    assert table(MACHINES[1:3], usage, Wanted()) == [
        ["NAME", "CPU(cores)", "MEMORY(bytes)"],
        ["db", "250m", "900Mi"],
        ["new", "<unknown>", "<unknown>"],
    ]
