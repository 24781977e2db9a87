from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta.objects import Object, condition
from controller.reconcilers.replica_sets import replica_set_plan
from controller.reconcilers.replica_sets.replica_set_plan import Observed, Plan
from controller.reconcilers.replica_sets.replica_set_status import status
from controller.reconcilers.replica_sets.rollout_plan import Rollout
from tests.unit.controller.reconcilers.replica_sets.builders import NOW, WEB, a_machine, a_set

OLD, NEW = "aaaaaaaaaa", "bbbbbbbbbb"
HISTORY = [{"name": OLD, "revision": 1, "template": {}}, {"name": NEW, "revision": 2, "template": {}}]


def a_pool(replicas: int = 3, strategy: Object | None = None, **more: Any) -> Object:
    told = {"revisions": HISTORY, "currentRevision": OLD}
    return a_set(replicas=replicas, ordinals={}, updateStrategy=strategy or {}, status=told, **more)


def machine(ordinal: int, revision: str = OLD, *, restarting: bool = False, **more: Any) -> Object:
    attempt = {"attempt": 1, "attempts": [{"number": 1, "podName": "p"}]}
    made = a_machine(f"web-{ordinal}", labels={**WEB, "kubevirt.io/revision": revision}, **{**attempt, **more})
    if restarting:
        made["status"]["request"] = {"action": "Restart", "runStrategy": "RerunOnFailure", "generation": 1, "attempt": 2}
    return made


def off(ordinal: int, revision: str = OLD) -> Object:
    made = machine(ordinal, revision, phase="Stopped", ready=None, node="", attempts=[])
    made["spec"]["runStrategy"] = "Halted"
    return made


def failed(ordinal: int, revision: str = OLD) -> Object:
    ended = [{"number": each, "podName": "p", "nodeName": "node1", "result": "Failed", "generation": 2} for each in range(1, 4)]
    made = machine(ordinal, revision, phase="Failed", ready=None, attempt=3, attempts=ended)
    made["metadata"]["generation"] = 2
    return made


def behind(ordinal: int, **more: Any) -> Object:
    return machine(ordinal, NEW, running={"generation": 1, "domain": {"memory": {"guest": "1Gi"}}}, **more)


def unreachable(ordinal: int, revision: str = OLD, **more: Any) -> Object:
    made = machine(ordinal, revision, phase="Unknown", **more)
    made["status"]["conditions"][0]["status"] = "Unknown"
    return made


def waiting(ordinal: int, revision: str = OLD) -> Object:
    return machine(ordinal, revision, phase="Pending", ready=None, node="", attempt=0, attempts=[])


def stopping(ordinal: int, revision: str = OLD) -> Object:
    made = machine(ordinal, revision)
    made["status"]["request"] = {"action": "Stop", "runStrategy": "RerunOnFailure", "generation": 1, "attempt": 1}
    return made


def plan(replica_set: Object, *machines: Object) -> Plan:
    return replica_set_plan.plan(Observed(replica_set, machines, NOW))


def lack(replica_set: Object, *machines: Object) -> str:
    found = condition(status(replica_set, plan(replica_set, *machines), None, NOW)["conditions"], "Reconciling")
    return str((found or {}).get("message") or "")


def rolling(**given: int | str) -> Object:
    return {"type": "RollingUpdate", "rollingUpdate": given}


@pytest.mark.parametrize(
    ("replica_set", "machines", "update"),
    [
        pytest.param(a_pool(), [machine(0), machine(1), machine(2)], (2,), id="highest-first"),
        pytest.param(a_pool(), [machine(0), machine(1), machine(2, NEW)], (1,), id="the-next"),
        pytest.param(a_pool(), [machine(0), machine(1), machine(2, NEW, ready=None)], (), id="waits-until-ready"),
        pytest.param(a_pool(), [machine(0), machine(1), machine(2, NEW, restarting=True)], (), id="waits-for-restart"),
        pytest.param(a_pool(minReadySeconds=90), [machine(0), machine(1), machine(2, NEW)], (), id="ready-ones-need-the-budget"),
        pytest.param(a_pool(minReadySeconds=60), [machine(0), machine(1), machine(2, NEW)], (1,), id="available-at-the-moment"),
        pytest.param(a_pool(), [machine(0), machine(1), waiting(2, NEW)], (), id="waits-until-there-is-a-pod"),
        pytest.param(a_pool(), [machine(0), machine(2)], (), id="one-is-missing"),
        pytest.param(a_pool(4, rolling(maxUnavailable=2)), [machine(0), machine(1), machine(2)], (2,), id="one-of-two-is-missing"),
        pytest.param(
            a_pool(4, rolling(maxUnavailable=3)), [machine(0), machine(1), machine(2), waiting(3, NEW)], (2, 1), id="one-of-three-waits"
        ),
        pytest.param(a_pool(4), [machine(0), machine(1), waiting(2, NEW), waiting(3, NEW)], (), id="more-than-allowed-wait"),
        pytest.param(a_pool(), [machine(0), machine(1, deleting=True), machine(2)], (), id="one-is-going"),
        pytest.param(a_pool(strategy=rolling(maxUnavailable=2)), [machine(0), machine(1), machine(2)], (2, 1), id="two-at-once"),
        pytest.param(a_pool(5, rolling(maxUnavailable="50%")), [*map(machine, range(5))], (4, 3), id="half-rounded-down"),
        pytest.param(a_pool(strategy=rolling(maxUnavailable="1%")), [*map(machine, range(3))], (2,), id="at-least-one"),
        pytest.param(a_pool(strategy=rolling(partition=2)), [machine(0), machine(1), machine(2, NEW)], (), id="partition"),
        pytest.param(a_pool(), [machine(0, ready=None), machine(1), machine(2)], (0,), id="broken-first"),
        pytest.param(a_pool(), [unreachable(0), unreachable(1), machine(2)], (), id="unreachable-ones-use-the-budget"),
        pytest.param(
            a_pool(4, rolling(maxUnavailable=3)), [unreachable(0), *map(machine, (1, 2)), unreachable(3)], (3,), id="no-more-than-allowed"
        ),
        pytest.param(a_pool(), [unreachable(0, restarting=True), machine(1), machine(2)], (0,), id="unreachable-one-restarts-anyway"),
        pytest.param(a_pool(), [machine(0), machine(1), behind(2)], (), id="waits-for-a-live-change"),
        pytest.param(a_pool(strategy=rolling(maxUnavailable=2)), [machine(0), machine(1), behind(2)], (1,), id="one-of-two-is-behind"),
        pytest.param(a_pool(), [off(0), off(1), machine(2)], (1, 0, 2), id="off-at-once"),
        pytest.param(a_pool(), [machine(0), machine(1), failed(2, NEW)], (), id="a-template-that-fails-goes-no-further"),
        pytest.param(a_pool(), [machine(0), machine(1), failed(2)], (2,), id="failed-first"),
        pytest.param(a_pool(), [machine(0), machine(1), stopping(2, NEW)], (), id="waits-for-a-stop"),
        pytest.param(a_pool(), [machine(0), machine(1), off(2, NEW)], (1,), id="one-that-is-off-delays-nothing"),
        pytest.param(a_pool(), [machine(0), machine(1, "cccccccccc"), machine(2, "cccccccccc")], (2,), id="an-edit-during-an-update"),
        pytest.param(a_pool(4), [machine(0), machine(1), machine(2, NEW)], (), id="scaled-during-an-update"),
        pytest.param(a_pool(strategy={"type": "OnDelete"}), [machine(0), machine(1), machine(2)], (), id="on-delete"),
        pytest.param(a_pool(paused=True), [machine(0), machine(1), machine(2)], (), id="paused"),
        pytest.param(a_pool(deleting=True), [machine(0), machine(1), machine(2)], (), id="deletion"),
        pytest.param(a_pool(1), [machine(0), machine(1)], (0,), id="excess-ones-not"),
        pytest.param(a_pool((1 << 31) - 1), [machine(0), off(1)], (1,), id="two-billion"),
        pytest.param(a_pool(2), [machine(0), machine(1), machine(2)], (1,), id="excess-ones-do-not-count"),
        pytest.param(a_set(replicas=1, ordinals={}), [machine(0)], (), id="without-revisions"),
    ],
)
def test_update(replica_set: Object, machines: list[Object], update: tuple[int, ...]) -> None:
    found = plan(replica_set, *machines)
    assert found.rollout.update == update
    assert found.acts is bool(found.create or found.ordinals or found.delete or update)


def test_without_revisions_nothing_is_updated() -> None:
    assert plan(a_set(replicas=0, ordinals={})).rollout == Rollout() == Rollout((), updated=0, is_complete=False, restarting=0)


def test_a_malformed_machine_is_left_alone() -> None:
    broken = machine(0, phase="Stopped", ready=None)
    broken["status"]["attempts"] = [{"number": "x"}]
    found = plan(a_pool(1), broken)
    assert found.rollout.update == ()
    assert lack(a_pool(1), broken) == "0 of 1 machines are available; 0 have the newest template; web-0: malformed"


@pytest.mark.parametrize(
    ("machines", "expected"),
    [
        ([machine(0), machine(1)], 0),
        ([machine(0, restarting=True), stopping(1)], 2),
        ([machine(0, restarting=True, ready=None), machine(1)], 0),
        ([machine(0, ready=1), machine(1)], 0),
    ],
)
def test_ready_machines_that_will_restart_are_counted(machines: list[Object], expected: int) -> None:
    assert plan(a_pool(2, minReadySeconds=30), *machines).rollout.restarting == expected


@pytest.mark.parametrize(
    ("machines", "current", "updated"),
    [
        ([machine(0, NEW), machine(1, NEW)], NEW, 2),
        ([machine(0, NEW), off(1, NEW)], NEW, 2),
        ([machine(0, NEW), failed(1, NEW)], OLD, 2),
        ([machine(0, NEW), stopping(1, NEW)], OLD, 2),
        ([machine(0, NEW), behind(1)], OLD, 2),
        ([machine(0, NEW), machine(1, NEW, ready=None)], OLD, 2),
        ([machine(0), machine(1, NEW)], OLD, 1),
        ([machine(1, NEW)], OLD, 1),
    ],
)
def test_the_status_tells_the_progress(machines: list[Object], current: str, updated: int) -> None:
    pool = a_pool(2)
    told = status(pool, plan(pool, *machines), None, NOW)
    assert (told["currentRevision"], told["updateRevision"], told["updatedReplicas"]) == (current, NEW, updated)
    assert told["revisions"] == HISTORY
    reconciling = [each["message"] for each in told["conditions"] if each["type"] == "Reconciling"]
    assert bool(reconciling) is (current == OLD)
    assert any(f"{updated} have the newest template" in each for each in reconciling) is (updated < 2)


@pytest.mark.parametrize(
    ("replica_set", "machines", "message"),
    [
        (a_pool(), [machine(0), machine(1, NEW), machine(2, NEW)], "3 of 3 machines are available; 2 have the newest template"),
        (a_pool(4), [*(machine(each, NEW) for each in range(3)), waiting(3, NEW)], "3 of 4 machines are available; web-3: Pending"),
        (a_pool(2), [waiting(0, NEW), waiting(1, NEW)], "0 of 2 machines are available; web-0: Pending"),
        (a_pool(1), [machine(0, NEW), machine(1, NEW)], "2 of 1 machines are available; the set has 2"),
        (a_pool(2), [machine(0, NEW), stopping(1, NEW)], "2 of 2 machines are available; 1 are about to restart or stop"),
        (
            a_pool(2),
            [machine(0, NEW), behind(1)],
            "2 of 2 machines are available; 1 guests lack a part of the newest template (status.changes, RestartRequired)",
        ),
        (a_pool(2), [machine(0, NEW), behind(1, restarting=True)], "2 of 2 machines are available; 1 are about to restart or stop"),
        (a_pool(2, {"type": "OnDelete"}), [machine(0, NEW), behind(1)], ""),
        (a_pool(2, {"type": "OnDelete"}), [machine(0), machine(1)], ""),
        (a_pool(2, rolling(partition=1)), [machine(0), machine(1, NEW)], ""),
    ],
)
def test_reconciling_tells_what_the_set_waits_for(replica_set: Object, machines: list[Object], message: str) -> None:
    assert lack(replica_set, *machines) == message


def test_edit_of_one_machine_after_the_update_does_not_count() -> None:
    pool = a_pool(2)
    pool["status"]["currentRevision"] = NEW
    assert lack(pool, machine(0, NEW), behind(1)) == ""


@pytest.mark.parametrize("current", ["0", "zzzzz"], ids=["before", "after"])
def test_order_of_revision_names_means_nothing(current: str) -> None:
    pool = a_pool(2)
    pool["status"]["currentRevision"] = current
    assert "1 guests lack a part" in lack(pool, machine(0, NEW), behind(1))


def test_stopped_machine_is_not_behind() -> None:
    stopped = off(1, NEW)
    stopped["status"]["running"] = behind(1)["status"]["running"]
    assert lack(a_pool(2), machine(0, NEW), stopped) == ""


@pytest.mark.parametrize(("spec", "waits"), [({"ordinals": {}}, False), ({}, True)])
def test_a_stopped_machine_delays_only_a_set_with_random_names(spec: Object, *, waits: bool) -> None:
    stopped = stopping(0, NEW)
    stopped["status"] |= {"phase": "Stopped", "conditions": [{"type": "Ready", "status": "False"}]}
    of_set = a_set(replicas=1, status={"revisions": HISTORY} if spec else {}, **spec)
    kinds = [each["type"] for each in status(of_set, plan(of_set, stopped), None, NOW)["conditions"]]
    assert kinds == (["Reconciling"] if waits else [])


@given(
    machines=st.lists(st.tuples(st.sampled_from([OLD, NEW]), st.booleans(), st.booleans()), min_size=1, max_size=6),
    most=st.integers(1, 3),
)
def test_a_rollout_ends_and_keeps_machines_available(machines: list[tuple[str, bool, bool]], most: int) -> None:
    """Each updated machine is unavailable for one pass. No pass makes more available machines unavailable than allowed."""
    pool = a_pool(len(machines), rolling(maxUnavailable=most))
    states = {number: (revision, ready) for number, (revision, ready, _) in enumerate(machines)}
    for _ in range(2 * len(machines) + 1):
        made = [machine(number, revision, ready=60 if ready else None) for number, (revision, ready) in states.items()]
        found = plan(pool, *made)
        unavailable = {number for number, (_, ready) in states.items() if not ready}
        taken = {number for number in found.rollout.update if states[number][1]}
        assert not taken or len(unavailable | taken) <= most
        states = {number: (NEW, False) if number in found.rollout.update else (revision, True) for number, (revision, _) in states.items()}
    assert {revision for revision, _ in states.values()} == {NEW}
