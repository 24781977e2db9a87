from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.virt.lifecycle import failed_starts

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NODES = {each: {"metadata": {"name": each}} for each in ("bad", "good", "other", "fourth")}


def at(minutes_ago: float) -> str:
    return times.to_rfc3339(NOW - timedelta(minutes=minutes_ago))


def failed(node: str, minutes_ago: float) -> dict[str, Any]:
    return {"nodeName": node, "result": "Failed", "endTime": at(minutes_ago)}


def ran(node: str, minutes_ago: float) -> dict[str, Any]:
    return {"nodeName": node, "runningTime": at(minutes_ago)}


def vm(name: str, *attempts: dict[str, Any]) -> dict[str, Any]:
    numbered = [{"number": number, **each} for number, each in enumerate(attempts, 1)]
    return {"metadata": {"name": name, "namespace": "ns"}, "status": {"attempts": numbered}}


def moved(name: str, minutes_ago: float, node: str = "bad") -> dict[str, Any]:
    return vm(name, failed(node, minutes_ago), ran("good", minutes_ago - 0.5))


def avoided(*machines: dict[str, Any], nodes: dict[str, Any] | None = None) -> dict[str, failed_starts.Verdict]:
    tried: dict[str, list[Any]] = {}
    for each in machines:
        for node in failed_starts.tried_nodes(each):
            tried.setdefault(node, []).append(each)
    return failed_starts.non_operational(nodes or NODES, tried, NOW)


def test_three_machines_that_failed_there_and_ran_elsewhere() -> None:
    machines = [moved(name, minutes) for name, minutes in (("a", 9), ("b", 5), ("c", 2))]
    assert avoided(*machines[:2]) == {}
    assert avoided(*machines) == {"bad": failed_starts.Verdict(NOW + timedelta(minutes=8), 3, 1)}
    assert avoided(machines[0], machines[0], machines[0]) == {}, "one machine is one piece of evidence"


def test_a_machine_that_fails_by_design_is_no_evidence() -> None:
    by_design = [vm(name, failed("bad", 3), failed("good", 2), failed("other", 1)) for name in "abcd"]
    generations = zip("qrstuv", (1, 1, 1, 9, 9, 9), strict=True)
    edited = [vm(name, failed("bad", 3) | {"generation": each}, ran("good", 2) | {"generation": each + 1}) for name, each in generations]
    once = [vm(name, failed("bad", 1)) for name in "efgh"]
    crashed = [vm(name, {**ran("bad", 5), **failed("bad", 1)}, ran("good", 0.5)) for name in "ijkl"]
    back = [vm(name, failed("bad", 3), ran("bad", 2)) for name in "mnop"]
    assert avoided(*by_design, *once) == avoided(*edited) == avoided(*crashed) == avoided(*back) == {}
    assert failed_starts.nodes_of_failures(back[0]) == []


def test_failures_far_apart_do_not_count_together() -> None:
    assert avoided(moved("a", 25), moved("b", 14), moved("c", 2)) == {}
    assert set(avoided(moved("a", 12), moved("b", 7), moved("c", 2))) == {"bad"}


def test_a_success_there_clears_the_node() -> None:
    machines = [moved("a", 9), moved("b", 5), moved("c", 2)]
    assert avoided(*machines, vm("d", ran("bad", 1))) == avoided(*machines, vm("d", ran("bad", 0))) == {}
    assert set(avoided(*machines, vm("d", ran("bad", 20)))) == {"bad"}
    assert avoided(*(moved(name, 2) for name in "abc"), vm("d", ran("bad", 2))) == {}


def test_machines_of_two_namespaces_are_counted() -> None:
    machines = [moved("a", 9), moved("b", 5), moved("c", 2)]
    machines[0]["metadata"]["namespace"] = "other"
    assert avoided(*machines)["bad"].namespaces == 2


@pytest.mark.parametrize(("node", "other"), [("bad", "other"), ("other", "bad")])
def test_an_attempt_that_did_not_fail_is_no_evidence(node: str, other: str) -> None:
    stopped = failed(other, 4) | {"result": "Stopped"}
    assert set(avoided(*(vm(name, stopped, failed(node, 3), ran("good", 2)) for name in "abc"))) == {node}


def test_only_existing_nodes_are_avoided() -> None:
    assert avoided(*(moved(name, 2, "gone") for name in "abc")) == {}
    assert failed_starts.nodes_of_failures(moved("a", 2, "")) == []


def test_a_migration_is_no_start() -> None:
    """A drain of the node makes it not suspect, and does not hide a success there."""
    back = [vm(name, failed("bad", 3), ran("good", 2) | {"startNodeName": "bad"}) for name in "abc"]
    assert avoided(*back) == {}
    machines = [moved("a", 9), moved("b", 5), moved("c", 2)]
    assert avoided(*machines, vm("d", ran("good", 1) | {"startNodeName": "bad"})) == {}
    assert set(avoided(*machines, vm("d", ran("bad", 1) | {"startNodeName": "good"}))) == {"bad"}


def test_a_repair_clears_the_node() -> None:
    machines = [moved("a", 9), moved("b", 5), moved("c", 2)]
    for when, expected in ((at(1), set()), (at(2), set()), (at(20), {"bad"}), ("soon", {"bad"}), (at(-1), {"bad"})):
        repaired = {"metadata": {"name": "bad", "annotations": {"kubevirt.io/repaired-at": when}}}
        assert set(avoided(*machines, nodes={**NODES, "bad": repaired})) == expected


@pytest.mark.parametrize(("minutes", "expected"), [(1, set()), (20, {"bad"})])
def test_failures_before_the_nodes_creation_do_not_count(minutes: float, expected: set[str]) -> None:
    machines = [moved("a", 9), moved("b", 5), moved("c", 2)]
    replaced = {"metadata": {"name": "bad", "creationTimestamp": at(minutes)}}
    assert set(avoided(*machines, nodes={**NODES, "bad": replaced})) == expected


def test_after_the_pause_a_failed_trial_doubles_it() -> None:
    machines = [moved("a", 29), moved("b", 25), moved("c", 22)]
    verdict = avoided(*machines)["bad"]
    assert (verdict.until, verdict.is_on_trial(NOW)) == (NOW - timedelta(minutes=12), True)
    assert not avoided(*machines, moved("d", 1))["bad"].is_on_trial(NOW)
    assert avoided(*machines, moved("d", 1))["bad"].until == NOW - timedelta(minutes=1) + timedelta(minutes=20)
    assert failed_starts.Verdict(NOW, 3, 2).is_on_trial(NOW)
    many = [moved(f"m{each}", 1) for each in range(40)]
    assert avoided(*many)["bad"].until == NOW - timedelta(minutes=1) + timedelta(hours=2)


@pytest.mark.parametrize(("found", "nodes", "too_many"), [(2, 3, True), (3, 6, False), (4, 6, True)])
def test_more_than_half_of_the_nodes_are_too_many(found: int, nodes: int, too_many: bool) -> None:
    assert failed_starts.too_many(range(found), range(nodes)) is too_many


def test_if_most_nodes_seem_bad_none_is_avoided() -> None:
    machines = [moved(f"{node}-{each}", 1, node) for node in ("bad", "other", "fourth") for each in range(3)]
    assert avoided(*machines) == {}
    assert set(avoided(*machines[:6])) == {"bad", "other"}
    few = {each: NODES[each] for each in ("bad", "good")}
    assert set(avoided(*machines[:3], nodes={"bad": NODES["bad"]})) == set(avoided(*machines[:3], nodes=few)) == {"bad"}


@pytest.mark.parametrize(
    "status", [{}, 5, {"attempts": None}, {"attempts": ["x"]}, {"attempts": [{"nodeName": "bad", "result": "Failed"}]}]
)
def test_an_invalid_status_is_no_evidence(status: Any) -> None:
    found = {"metadata": {"name": "a", "namespace": "ns"}, "status": status}
    assert failed_starts.nodes_of_failures(found) == []
    assert avoided(found) == {}


def test_a_time_in_the_future_does_not_count() -> None:
    assert avoided(moved("a", -60), moved("b", -60), moved("c", -60)) == {}
    assert set(avoided(*(moved(name, 0) for name in "abc"))) == {"bad"}


def test_old_failures_make_no_suspects() -> None:
    assert avoided(*(moved(name, 241) for name in "abc")) == avoided(*(moved(name, 240) for name in "abc")) == {}
    assert failed_starts.nodes_of_failures(moved("a", 240), NOW) == []
    assert set(avoided(*(moved(name, 239) for name in "abc"))) == {"bad"}
    machine = moved("a", 300)
    assert failed_starts.nodes_of_failures(machine) == ["bad"]
    assert failed_starts.nodes_of_failures(machine, NOW) == []
    assert failed_starts.nodes_of_failures(moved("a", 100), NOW) == ["bad"]


def test_a_moved_guest_is_found_by_the_node_where_it_is() -> None:
    """virt-controller fences that node, once it is lost, for the sake of the machine."""
    vm = {"status": {"attempts": [{"number": 1, "startNodeName": "node1", "nodeName": "node2"}]}}
    assert failed_starts.tried_nodes(vm) == ["node1", "node2"]
