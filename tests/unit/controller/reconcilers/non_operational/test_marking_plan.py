from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from apiserver.apis.meta import times
from apiserver.apis.virt.lifecycle.failed_starts import Verdict
from controller.reconcilers.nodes.node_reports import Census
from controller.reconcilers.non_operational import marking_plan
from controller.reconcilers.non_operational.marking_plan import LOOK_SECONDS, Observed, SetCondition, SetTaint, plan
from controller.reconcilers.trimming import trim_node

NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT: Final = "2026-01-01T12:00:00Z"
OTHER: Final = {"key": "k", "value": "v", "effect": "NoSchedule"}
READY: Final = {"type": "Ready", "status": "True"}
OURS: Final = "kubevirt.io/non-operational"
PAUSED: Final = Verdict(NOW + timedelta(minutes=8), 3, 2)
TRIAL: Final = Verdict(NOW, 3, 2)


def node(*effects: str, told: SetCondition | None = None) -> dict[str, Any]:
    taints = [OTHER, *({"key": OURS, "effect": each} for each in effects)]
    ours = [] if told is None else [{"type": "KubevirtNonOperational", **dataclasses.asdict(told)}]
    return {"metadata": {"name": "node1", "uid": "u"}, "spec": {"taints": taints, "podCIDR": "c"}, "status": {"conditions": [READY, *ours]}}


AVOIDED: Final = SetCondition("True", "StartsFailed", PAUSED.message())
TRIED: Final = SetCondition("False", "Trial", TRIAL.message())
CLEARED: Final = SetCondition("False", "Operational", "starts do not avoid the node")
FAILING: Final = Observed(node(), PAUSED, is_one_of_many=False, avoided=1, nodes=2, effect="NoSchedule", now=NOW, is_suspect=True)


@pytest.mark.parametrize(
    ("changes", "actions"),
    [
        ({}, (AVOIDED, SetTaint("NoSchedule"))),
        ({"effect": "PreferNoSchedule"}, (AVOIDED, SetTaint("PreferNoSchedule"))),
        ({"node": node(told=AVOIDED)}, (SetTaint("NoSchedule"),)),
        ({"node": node("NoSchedule")}, (AVOIDED,)),
        ({"node": node("NoSchedule", told=AVOIDED)}, ()),
        ({"node": node("PreferNoSchedule", told=AVOIDED)}, (SetTaint("NoSchedule"),)),
        ({"node": node("NoSchedule", "NoExecute", told=AVOIDED)}, (SetTaint("NoSchedule"),)),
        ({"node": node("NoSchedule", told=AVOIDED), "verdict": TRIAL}, (SetTaint(None), TRIED)),
        ({"node": node(told=TRIED), "verdict": TRIAL}, ()),
        ({"node": node(told=TRIED)}, (AVOIDED, SetTaint("NoSchedule"))),
        ({"node": node("NoSchedule", told=AVOIDED), "verdict": None}, (SetTaint(None), CLEARED)),
        ({"node": node("NoSchedule"), "verdict": None}, (SetTaint(None),)),
        ({"node": node(told=CLEARED), "verdict": None}, ()),
        ({"verdict": None}, ()),
    ],
)
def test_condition_comes_before_the_taint_and_goes_after_it(changes: dict[str, Any], actions: object) -> None:
    seen = dataclasses.replace(FAILING, **changes)
    assert plan(seen) == actions
    assert plan(dataclasses.replace(seen, node=trim_node(seen.node))) == actions, "a node in memory shows as much"


@pytest.mark.parametrize(("avoided", "nodes", "tainted"), [(1, 1, False), (1, 2, True), (1, 3, True), (2, 3, False), (1, 0, False)])
def test_at_most_half_of_the_nodes_with_virt_handler_are_tainted(avoided: int, nodes: int, tainted: bool) -> None:
    told, *taint = plan(dataclasses.replace(FAILING, avoided=avoided, nodes=nodes))
    assert isinstance(told, SetCondition)
    assert (told.status, "not tainted" in told.message) == ("True", not tainted)
    assert taint == ([SetTaint("NoSchedule")] if tainted else [])
    again = dataclasses.replace(FAILING, node=node("NoSchedule", told=AVOIDED), avoided=avoided, nodes=nodes)
    assert (SetTaint(None) in plan(again)) is not tainted


def test_machines_of_one_namespace_cause_no_taint() -> None:
    verdict = dataclasses.replace(PAUSED, namespaces=1)
    (told,) = plan(dataclasses.replace(FAILING, verdict=verdict))
    assert isinstance(told, SetCondition)
    assert (told.status, told.reason) == ("True", "StartsFailed")
    assert told.message.endswith("it is not tainted, because these machines are in one namespace")
    tainted = dataclasses.replace(FAILING, node=node("NoSchedule", told=told), verdict=verdict)
    assert plan(tainted) == (SetTaint(None),)
    assert plan(dataclasses.replace(FAILING, verdict=dataclasses.replace(PAUSED, namespaces=3))) == plan(FAILING)


@pytest.mark.parametrize("verdict", [PAUSED, TRIAL])
def test_if_most_nodes_fail_the_condition_says_so(verdict: Verdict) -> None:
    told = SetCondition(
        "Unknown",
        "MostNodesFail",
        "3 virtual machines failed to start there and ran on other nodes; starts do not avoid it, because they fail on most nodes",
    )
    assert plan(dataclasses.replace(FAILING, verdict=verdict, is_one_of_many=True)) == (told,)
    before = dataclasses.replace(FAILING, node=node("NoSchedule", told=AVOIDED), verdict=verdict, is_one_of_many=True)
    assert plan(before) == (SetTaint(None), told)


def test_nodes_on_trial_and_reporting_ones_count() -> None:
    verdicts = marking_plan.Verdicts(frozenset({"node1"}), {"node1": PAUSED, "node2": TRIAL, "node4": TRIAL}, are_too_many=False)
    census = Census(reporting=2, unreachable=3)
    assert marking_plan.observe(node(), verdicts, census, "NoSchedule", NOW) == FAILING
    other = {"metadata": {"name": "node3"}}
    found = marking_plan.observe(other, dataclasses.replace(verdicts, are_too_many=True), census, "NoSchedule", NOW)
    assert (found.verdict, found.is_suspect, found.is_one_of_many) == (None, False, True)


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, LOOK_SECONDS),
        ({"verdict": Verdict(NOW + timedelta(seconds=4), 3, 2)}, 4.0),
        ({"verdict": Verdict(NOW + timedelta(seconds=0.5), 3, 2)}, 0.5),
        ({"verdict": TRIAL}, LOOK_SECONDS),
        ({"verdict": Verdict(NOW - timedelta(seconds=4), 3, 2)}, LOOK_SECONDS),
        ({"verdict": None}, LOOK_SECONDS),
        ({"verdict": None, "is_suspect": False}, None),
        ({"verdict": None, "is_suspect": False, "node": node("NoSchedule")}, LOOK_SECONDS),
        ({"verdict": None, "is_suspect": False, "node": node(told=AVOIDED)}, LOOK_SECONDS),
        ({"verdict": None, "is_suspect": False, "node": node(told=CLEARED)}, None),
    ],
)
def test_next_look_is_at_the_trial_or_soon(changes: dict[str, Any], seconds: float | None) -> None:
    assert marking_plan.next_look(dataclasses.replace(FAILING, **changes)) == seconds


def test_other_taints_and_the_rest_of_the_node_stay() -> None:
    given = node("PreferNoSchedule")
    found = marking_plan.with_taint(given, "NoSchedule")
    assert found["spec"] == {"podCIDR": "c", "taints": [OTHER, {"key": OURS, "effect": "NoSchedule"}]}
    assert marking_plan.with_taint(found, None)["spec"] == {"podCIDR": "c", "taints": [OTHER]}
    assert given == node("PreferNoSchedule"), "the argument is not changed"
    assert marking_plan.with_taint({"metadata": {}}, None)["spec"] == {"taints": []}


def test_transition_time_changes_with_the_status() -> None:
    def written(before: SetCondition | None, after: SetCondition = AVOIDED) -> dict[str, Any]:
        patch = marking_plan.status_patch(node(told=before), after, NOW)
        assert patch["metadata"] == {"uid": "u"}
        (found,) = patch["status"]["conditions"]
        return dict(found)

    same = {"type": "KubevirtNonOperational", **dataclasses.asdict(AVOIDED), "lastHeartbeatTime": times.to_rfc3339(NOW)}
    assert written(None) == written(TRIED) == {**same, "lastTransitionTime": AT}
    assert written(dataclasses.replace(AVOIDED, message="m")) == same
    assert written(AVOIDED, TRIED)["lastTransitionTime"] == AT
