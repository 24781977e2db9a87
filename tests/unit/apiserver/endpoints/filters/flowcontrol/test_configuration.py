"""FLW-02: the priority level of a request, and the seats of levels."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.users import ANONYMOUS, User
from apiserver.endpoints import requestinfo
from apiserver.endpoints.filters.flowcontrol.borrowing import AllocationItem, Bounds, Demand, allocate, allocation_item, bounds
from apiserver.endpoints.filters.flowcontrol.configuration import Level, read

PATH = "/apis/example.com/v1/namespaces/a/widgets"
ACCOUNT = User("system:serviceaccount:ops:robot", ("system:serviceaccounts", "system:authenticated"))
ALICE = User("alice", ("team", "system:authenticated"))


def level(name: str, **limited: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"u-{name}"}, "spec": {"type": "Limited", "limited": limited}}


def schema(name: str, precedence: int, *rules: dict[str, Any], to: str = "work", **more: Any) -> dict[str, Any]:
    spec = {"priorityLevelConfiguration": {"name": to}, "matchingPrecedence": precedence, "rules": list(rules), **more}
    return {"metadata": {"name": name, "uid": f"u-{name}"}, "spec": spec}


def rule(
    kind: str, name: str, *, namespace: str = "", resources: list[str] | None = None, paths: list[str] | None = None, **more: Any
) -> dict[str, Any]:
    key = {"User": "user", "Group": "group", "ServiceAccount": "serviceAccount"}[kind]
    about = {"name": name, **({"namespace": namespace} if namespace else {})}
    found: dict[str, Any] = {"subjects": [{"kind": kind, key: about}]}
    if resources:
        base = {"verbs": ["*"], "apiGroups": ["*"], "resources": resources, "namespaces": ["*"], "clusterScope": True}
        found["resourceRules"] = [{**base, **more}]
    if paths:
        found["nonResourceRules"] = [{"verbs": ["get"], "nonResourceURLs": paths}]
    return found


@pytest.mark.parametrize(
    ("given", "user", "path", "name"),
    [
        (rule("User", "alice", resources=["*"]), ALICE, PATH, "s"),
        (rule("User", "*", resources=["widgets"]), ALICE, PATH, "s"),
        (rule("User", "bob", resources=["*"]), ALICE, PATH, "catch-all"),
        (rule("Group", "team", resources=["widgets"]), ALICE, PATH, "s"),
        (rule("Group", "team", resources=["widgets"]), ALICE, f"{PATH}/x/status", "catch-all"),
        (rule("Group", "team", resources=["widgets/status"]), ALICE, f"{PATH}/x/status", "s"),
        (rule("Group", "team", resources=["*"], namespaces=["b"]), ALICE, PATH, "catch-all"),
        (rule("Group", "team", resources=["*"], namespaces=["a"], clusterScope=False), ALICE, "/apis/example.com/v1/widgets", "catch-all"),
        (rule("Group", "team", resources=["*"], verbs=["get"]), ALICE, PATH, "catch-all"),
        (rule("ServiceAccount", "robot", namespace="ops", resources=["*"]), ACCOUNT, PATH, "s"),
        (rule("ServiceAccount", "*", namespace="ops", resources=["*"]), ACCOUNT, PATH, "s"),
        (rule("ServiceAccount", "*", namespace="op", resources=["*"]), ACCOUNT, PATH, "catch-all"),
        (rule("Group", "system:unauthenticated", paths=["/healthz"]), ANONYMOUS, "/healthz", "s"),
        (rule("Group", "system:unauthenticated", paths=["/healthz"]), ANONYMOUS, "/healthz/etcd", "s"),
        (rule("Group", "system:unauthenticated", paths=["/apis/*"]), ANONYMOUS, "/apis/g", "s"),
        (rule("Group", "system:unauthenticated", paths=["/healthz"]), ANONYMOUS, "/healthzz", "catch-all"),
    ],
)
def test_rules_match_as_in_go(given: dict[str, Any], user: User, path: str, name: str) -> None:
    made, wrong = read([schema("s", 500, given)], [level("work")])
    assert not wrong
    assert made.classify(user, requestinfo.parse("GET", path, {})).name == name


def test_the_lowest_precedence_decides_and_then_the_name() -> None:
    everything = rule("User", "*", resources=["*"])
    made, _ = read(
        [schema("b", 500, everything), schema("a", 500, everything), schema("z", 400, rule("User", "bob", resources=["*"]))],
        [level("work")],
    )
    assert made.classify(ALICE, requestinfo.parse("GET", PATH, {})).name == "a"


def test_masters_are_exempt_even_where_the_cluster_lost_that() -> None:
    made, _ = read([schema("s", 500, rule("User", "*", resources=["*"]))], [level("work")])
    found = made.classify(User("system:kube-aggregator", ("system:masters",)), requestinfo.parse("GET", "/apis/example.com/v1", {}))
    assert made.levels[found.level].exempt


def test_a_broken_object_takes_nothing_from_the_others() -> None:
    queuing = {"type": "Queue", "queuing": {"queues": 4, "handSize": 8}}
    broken = level("broken", limitResponse=queuing)
    made, wrong = read([schema("s", 1), {"metadata": {"name": "t"}}, schema("u", 1, to="absent")], [level("work"), broken])
    assert {each.name for each in made.schemas} == {"s", "exempt", "catch-all"}
    assert len(wrong) == 3


def test_seats_go_by_shares_and_bounds_by_percents() -> None:
    levels = {
        "a": Level("a", shares=30, lendable_percent=50),
        "b": Level("b", shares=10, borrowing_percent=100),
        "e": Level("e", exempt=True, shares=0),
    }
    expected = {"a": Bounds(300, 150, 700), "b": Bounds(100, 100, 200), "e": Bounds(0, 0, 400)}
    assert bounds(levels, 400) == expected


def test_demand_is_kept_over_a_period() -> None:
    demand = Demand(0)
    demand.set(10, 0)
    demand.set(0, 5)
    assert demand.close(10) == 10
    assert demand.smoothed == pytest.approx(5 + 5)  # the average plus the standard deviation
    assert demand.close(20) == 0
    assert 9 < demand.smoothed < 10


def test_an_idle_level_lends_to_one_that_needs() -> None:
    idle, busy = Bounds(300, 150, 700), Bounds(100, 100, 500)
    shares, fraction = allocate(400, [allocation_item(idle, 0, 0), allocation_item(busy, 400, 400)])
    assert shares == pytest.approx([150, 250])
    assert fraction < 1


@pytest.mark.parametrize(
    ("total", "items", "shares"),
    [
        (100, [AllocationItem(0, 100, 10), AllocationItem(0, 100, 30)], [25, 75]),
        (100, [AllocationItem(50, 100, 50), AllocationItem(0, 100, 200)], [50, 50]),
        (100, [AllocationItem(0, 20, 10), AllocationItem(0, 100, 10)], [20, 80]),
        (10, [AllocationItem(20, 30, 20), AllocationItem(20, 30, 20)], [20, 20]),
        (0, [], []),
    ],
)
def test_shares_are_in_proportion_within_bounds(total: float, items: list[AllocationItem], shares: list[float]) -> None:
    assert allocate(total, items)[0] == pytest.approx(shares)
