"""Each phase has a time limit, independent of launchers and nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import NamespacedName, condition
from apiserver.apis.virt.lifecycle import departure, evictions, phases
from apiserver.apis.virt.places import names
from apiserver.apis.virt.v1alpha1 import status_validation
from controller.evictions import places
from controller.reconcilers.actions import Action, DeletePod, Emit, Requeue, WriteStatus
from controller.reconcilers.migrations import migration_bounds, migration_queue
from controller.reconcilers.migrations.migration_bounds import (
    BEGIN_SECONDS,
    END_SECONDS,
    NODE_SECONDS,
    PREPARE_SECONDS,
    RUN_SECONDS,
    START_SECONDS,
    UNTOLD_SECONDS,
)
from controller.reconcilers.migrations.migration_plan import OVERDUE, Observed, plan
from controller.reconcilers.settings import MigrationLimits, Settings
from tests.unit.controller.reconcilers.builders import UID, a_migration, a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOURCE = names.launcher_pod_name("testvm", UID, 1)
TARGET = names.target_pod_name("testvm", "migration-uid")
HANDED_OVER = PREPARE_SECONDS + BEGIN_SECONDS


def ago(seconds: float) -> str:
    return times.to_rfc3339_micro(NOW - timedelta(seconds=seconds))


def under_way(phase: str, since: float, *, deleting: bool = False, **status: Any) -> dict[str, Any]:
    stamps = [{"phase": phases.PREPARING_TARGET, "time": ago(since)}, {"phase": phase, "time": ago(-86_400)}]
    sides = {"sourcePod": SOURCE, "targetPod": TARGET, "sourceNode": "node1", "targetNode": "node2"}
    given = {**sides, "options": {"completionTimeoutSeconds": 600}, **status}
    return a_migration(phase=phase, deleting=deleting, phaseTransitionTimestamps=stamps, **given)


def planned(migration: dict[str, Any], **rest: Any) -> tuple[Action, ...]:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    vm["status"] |= {"podName": SOURCE, "nodeName": "node1"}
    given: dict[str, Any] = {"vm": vm, "target": a_pod(migration="migration-uid", node="node2"), **rest}
    return plan(Observed(migration, source=a_pod(), claims={}, now=NOW, settings=Settings("launcher"), **given))


def written(actions: tuple[Action, ...]) -> dict[str, Any]:
    found = next(each.status for each in actions if isinstance(each, WriteStatus))
    assert not status_validation.validate_migration_status({"status": found}, {})
    return found


@pytest.mark.parametrize(
    ("deleting", "phase", "reason"), [(False, "Failed", "SourceNotReady"), (True, "Cancelled", "Cancelled")], ids=["kept", "deleted"]
)
def test_source_that_never_starts_ends_the_migration(phase: str, reason: str, *, deleting: bool) -> None:
    actions = planned(under_way(phases.TARGET_READY, HANDED_OVER - 1, deleting=deleting))
    assert actions[-1] == Requeue(1.0)
    for since in (HANDED_OVER, HANDED_OVER + 1):
        status = written(planned(under_way(phases.TARGET_READY, since, deleting=deleting)))
        found = condition(status["conditions"], "Succeeded") or {}
        assert (status["phase"], found["status"], found["reason"]) == (phase, "False", reason)
        assert status["message"] == "virt-handler of node node1 did not start the migration in time after the target was ready"


def test_a_guest_that_was_released_is_not_said_to_have_stayed() -> None:
    released = {"type": departure.RELEASED, "status": "True", "reason": departure.BY_POD, "message": "", "lastTransitionTime": ago(9)}
    migration = under_way(phases.TARGET_READY, HANDED_OVER, conditions=[released])
    assert planned(migration) == (Requeue(600.0 + END_SECONDS),)


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"completionTimeoutSeconds": 600}, 600),
        ({"completionTimeoutSeconds": 600, "allowPause": True}, 1200),
        ({}, UNTOLD_SECONDS),
    ],
    ids=["as long as it may take", "twice where it may be paused", "an hour where nothing says how long"],
)
def test_endless_migration_is_overdue_and_frees_its_place(options: dict[str, Any], allowed: int) -> None:
    whole = HANDED_OVER + allowed + END_SECONDS
    assert planned(under_way(phases.RUNNING, whole - 1, options=options)) == (Requeue(1.0),)
    overdue = under_way(phases.RUNNING, whole, options=options)
    actions = planned(overdue)
    status = written(actions)
    found = condition(status["conditions"], "Succeeded") or {}
    assert (status["phase"], found["status"], found["reason"]) == ("Running", "Unknown", "Overdue")
    assert "endTime" not in status
    assert [each.reason for each in actions if isinstance(each, Emit)] == ["Overdue"]
    assert planned({**overdue, "status": status}) == (), "it is said once"


def an_overdue(**status: Any) -> dict[str, Any]:
    known = {"type": "Succeeded", "status": "Unknown", "reason": OVERDUE, "message": "", "lastTransitionTime": ago(1e6)}
    return under_way(phases.RUNNING, 1e6, conditions=[known, *status.pop("more", ())], **status)


def deletions(actions: tuple[Action, ...]) -> list[DeletePod]:
    return [each for each in actions if isinstance(each, DeletePod)]


@pytest.mark.parametrize("deleting", [False, True])
def test_target_of_an_overdue_migration_is_kept(*, deleting: bool) -> None:
    target = a_pod(migration="migration-uid", node="node2")
    assert deletions(planned(an_overdue(deleting=deleting), target=target)) == []


def test_a_guest_that_runs_on_the_target_is_never_overdue() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    vm["status"] |= {"podName": TARGET, "nodeName": "node2"}
    migration = an_overdue()
    target = a_pod(migration="migration-uid", node="node2")
    actions = plan(Observed(migration, vm, a_pod(), target, claims={}, now=NOW, settings=Settings("launcher")))
    assert (written(actions)["phase"], deletions(actions)) == (phases.SUCCEEDED, [])


def test_next_attempt_is_not_overdue_and_has_its_own_time() -> None:
    failed = [{"number": 1, "reason": "ConnectionBroken", "message": "it broke", "endTime": ago(60)}]
    noted = {"type": "TargetScheduled", "status": "True", "reason": "Scheduled", "message": "", "lastTransitionTime": ago(1e6)}
    status = written(planned(an_overdue(attempt=1, attempts=failed, more=[noted]), target=None))
    assert (status["attempt"], [each["type"] for each in status["conditions"]]) == (2, ["Succeeded"])


def test_a_deletion_does_not_keep_the_place() -> None:
    status = written(planned(under_way(phases.RUNNING, 1e6, deleting=True)))
    assert (condition(status["conditions"], "Succeeded") or {})["reason"] == "Overdue"


@pytest.mark.parametrize(
    ("since", "begins"), [(HANDED_OVER + 600 + END_SECONDS - 1, False), (HANDED_OVER + 600 + END_SECONDS, True), (1e6, True)]
)
def test_the_next_one_begins_instead_of_one_that_never_ends(since: float, *, begins: bool) -> None:
    stuck, waiting = under_way(phases.RUNNING, since), a_migration()
    waiting["metadata"] = {"name": "waits", "namespace": "default", "creationTimestamp": ago(5)}
    machines = {NamespacedName("default", "testvm"): {"status": {"phase": "Running", "nodeName": "node1"}}}
    limits = MigrationLimits(per_node=1)
    turns = migration_queue.turns(migration_queue.Observed([stuck, waiting], machines, frozenset(), NOW, limits))
    assert turns[NamespacedName("default", "waits")].may_begin is begins


def test_overdue_migration_takes_no_eviction_place() -> None:
    stuck = under_way(phases.RUNNING, HANDED_OVER + 600 + END_SECONDS)
    stuck["metadata"] |= {"labels": {evictions.POD_LABEL: "pod"}, "annotations": {evictions.NODE_ANNOTATION: "node1"}}
    earlier = NOW - timedelta(seconds=1)
    assert [each.are_full() for each in places.found([stuck], "node1", 1, 1, earlier)] == [True, True]
    assert [each.are_full() for each in places.found([stuck], "node1", 1, 1, NOW)] == [False, False]


def test_guest_on_a_silent_node_takes_no_eviction_place() -> None:
    moving = under_way(phases.RUNNING, 1)
    moving["metadata"] |= {"labels": {evictions.POD_LABEL: "pod"}, "annotations": {evictions.NODE_ANNOTATION: "node1"}}
    vm = a_vm(phase=phases.UNKNOWN, attempts=[an_attempt()])
    vm["status"] |= {"podName": SOURCE, "nodeName": "node1"}

    def full(migration: dict[str, Any]) -> list[bool]:
        return [each.are_full() for each in places.found([migration], "node1", 1, 1, NOW)]

    actions = planned(moving, vm=vm)
    lost = {**moving, "status": written(actions)}
    assert (lost["status"]["phase"], lost["status"]["message"]) == (
        phases.RUNNING,
        "node node1 does not report, so the state of the migration is unknown",
    )
    assert (full(moving), full(lost)) == ([True, True], [False, False])
    assert isinstance(actions[-1], Requeue)
    assert planned(lost, vm=vm) == actions[-1:], "it is said once"
    back = {**lost, "status": written(planned(lost))}
    assert (full(back), back["status"]["message"], condition(back["status"]["conditions"], "Succeeded")) == ([True, True], "", None)
    assert planned(back) == actions[-1:]


def test_node_cannot_extend_the_target_time_by_new_timestamps() -> None:
    target = a_pod(phase="Pending", migration="migration-uid", node="node2")
    target["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(-60)}]
    limits = MigrationLimits(scheduling_seconds=300)

    def left(since: float) -> float | None:
        migration = a_migration(phase=phases.SCHEDULING, startTime=ago(since))
        return migration_bounds.target_left(migration, target, NOW, limits, is_refused=False)

    assert left(RUN_SECONDS + 300 - 4) == 4.0
    assert left(RUN_SECONDS + 300) == 0.0


@pytest.mark.parametrize(("said", "allowed"), [(1, 1), (0, UNTOLD_SECONDS), (-1, UNTOLD_SECONDS), ("600", UNTOLD_SECONDS)])
def test_invalid_completion_timeout_counts_as_unset(said: object, allowed: int) -> None:
    migration = under_way(phases.RUNNING, 0, options={"completionTimeoutSeconds": said})
    assert migration_bounds.place_left(migration, NOW) == HANDED_OVER + allowed + END_SECONDS


def test_time_counts_from_the_target_of_the_present_attempt() -> None:
    migration = under_way(phases.TARGET_READY, 40)
    migration["status"]["phaseTransitionTimestamps"].insert(0, {"phase": phases.PREPARING_TARGET, "time": ago(400)})
    assert migration_bounds.begin_left(migration, NOW) == HANDED_OVER - 40


UNPLACED = a_pod(phase="Pending", migration="migration-uid", node="")
PLACED = a_pod(phase="Pending", migration="migration-uid", node="node2")
del PLACED["status"]["conditions"]
RUNNING = a_pod(migration="migration-uid", node="node2")


def target_left(migration: dict[str, Any], target: dict[str, Any] | None, *, scheduling: int = 300, refused: bool = False) -> float | None:
    return migration_bounds.target_left(migration, target, NOW, MigrationLimits(scheduling_seconds=scheduling), is_refused=refused)


@pytest.mark.parametrize(
    ("target", "refused", "left"),
    [(None, False, None), (None, True, 290.0), (UNPLACED, False, 290.0), (UNPLACED, True, 290.0)],
    ids=["it is tried first", "a quota refused it", "it is there by now", "it is there by now, and was refused a moment ago"],
)
def test_pending_migration_ends_only_after_its_target_was_tried(
    target: dict[str, Any] | None, left: float | None, *, refused: bool
) -> None:
    assert target_left(a_migration(phase=phases.PENDING, startTime=ago(10)), target, refused=refused) == left


def test_before_its_turn_nothing_bounds_a_migration() -> None:
    assert target_left(a_migration(), None, refused=True) is None
    waits = a_migration(phase=phases.PENDING, phaseTransitionTimestamps=[{"phase": phases.PENDING, "time": ago(10)}])
    assert target_left(waits, None, refused=True) is None


def test_scheduling_time_counts_from_start_time_or_first_phase() -> None:
    stamps = [{"phase": phases.PENDING, "time": ago(20)}, {"phase": phases.SCHEDULING, "time": ago(5)}]
    assert target_left(a_migration(phase=phases.SCHEDULING, phaseTransitionTimestamps=stamps, startTime=ago(10)), UNPLACED) == 290.0
    assert target_left(a_migration(phase=phases.SCHEDULING, phaseTransitionTimestamps=stamps), UNPLACED) == 280.0
    assert target_left(a_migration(phase=phases.SCHEDULING), UNPLACED) is None


def test_scheduling_time_of_a_retry_counts_from_last_failure() -> None:
    stamps = [{"phase": phases.SCHEDULING, "time": ago(600)}, {"phase": phases.PENDING, "time": ago(10)}]
    again = a_migration(phase=phases.SCHEDULING, attempt=2, phaseTransitionTimestamps=stamps, startTime=ago(600))
    assert target_left(again, UNPLACED) == 290.0


@pytest.mark.parametrize(
    ("target", "scheduling", "left"),
    [
        (UNPLACED, 300, 290.0),
        (UNPLACED, 0, None),
        (PLACED, 300, RUN_SECONDS - 10.0),
        (PLACED, 0, RUN_SECONDS),
        (RUNNING, 300, None),
    ],
    ids=["for a node", "for ever", "to run", "to run, whatever it took to find a node", "it runs"],
)
def test_users_target_has_time_to_schedule_and_then_to_run(target: dict[str, Any], scheduling: int, left: float | None) -> None:
    assert target_left(a_migration(phase=phases.SCHEDULING, startTime=ago(10)), target, scheduling=scheduling) == left


def test_unlimited_scheduling_does_not_extend_the_time_to_run() -> None:
    """virt-controller records the scheduling once per attempt; the node reports it as just now, or tomorrow."""
    target = a_pod(phase="Pending", migration="migration-uid", node="node2", bound_at=ago(-86_400))
    migration = a_migration(phase=phases.SCHEDULING, startTime=ago(1e6), attempt=1, targetPod=TARGET)
    given = {"target": target, "limits": MigrationLimits(scheduling_seconds=0)}
    actions = planned(migration, **given)
    assert actions[1:] == (Requeue(RUN_SECONDS),)
    status = written(actions)
    noted = next(each for each in status["conditions"] if each["type"] == "TargetScheduled")
    assert (noted["status"], noted["message"], noted["lastTransitionTime"]) == (
        "True",
        "the target pod was scheduled to node node2",
        times.to_rfc3339(NOW),
    )
    noted["lastTransitionTime"] = ago(RUN_SECONDS - 3)
    again = planned({**migration, "status": status}, **given)
    assert again == (Requeue(2.0), Requeue(3.0)), "it is written once; the target's kubelet is looked at sooner"
    noted["lastTransitionTime"] = ago(RUN_SECONDS)
    assert written(planned({**migration, "status": status}, **given))["phase"] == phases.FAILED


@pytest.mark.parametrize(
    ("target", "scheduling", "noted"),
    [(UNPLACED, 0, False), (None, 0, False), (RUNNING, 0, False), (PLACED, 300, False), (PLACED, 0, True)],
)
def test_a_node_is_noted_only_where_nothing_else_bounds_its_time(target: dict[str, Any] | None, scheduling: int, *, noted: bool) -> None:
    limits = MigrationLimits(scheduling_seconds=scheduling)
    migration = a_migration(phase=phases.SCHEDULING, startTime=ago(10))
    assert migration_bounds.is_to_note_node(migration, target, limits) is noted
    migration["metadata"]["labels"] = {evictions.POD_LABEL: "pod"}
    assert not migration_bounds.is_to_note_node(migration, target, limits)


@pytest.mark.parametrize(
    ("target", "left"), [(None, NODE_SECONDS - 10.0), (UNPLACED, NODE_SECONDS - 10.0), (PLACED, START_SECONDS - 10.0), (RUNNING, None)]
)
def test_a_target_of_an_eviction_has_less_time(target: dict[str, Any] | None, left: float | None) -> None:
    migration = a_migration(phase=phases.SCHEDULING, startTime=ago(10))
    migration["metadata"]["labels"] = {evictions.POD_LABEL: "pod"}
    assert target_left(migration, target, scheduling=0) == left


@pytest.mark.parametrize("phase", [*sorted(phases.MIGRATION_FINAL), phases.PENDING, phases.SCHEDULING, phases.PREPARING_TARGET])
def test_other_phases_have_bounds_of_their_own(phase: str) -> None:
    assert migration_bounds.place_left(under_way(phase, 1e6), NOW) is None
