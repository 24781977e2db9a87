from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import condition, name_of, uid_of
from apiserver.apis.virt.lifecycle import departure
from apiserver.apis.virt.places import names
from controller.reconcilers.actions import Action, CreatePod, DeletePod, Emit, RemoveFinalizer, Requeue, WriteStatus
from controller.reconcilers.migrations.migration_bounds import PREPARE_SECONDS, RUN_SECONDS
from controller.reconcilers.migrations.migration_plan import (
    LAST_WORDS_SECONDS,
    SOURCE_END_SECONDS,
    STALE_SECONDS,
    Observed,
    plan,
)
from controller.reconcilers.migrations.migration_queue import Turn
from controller.reconcilers.nodes.node_reports import Unreachable
from controller.reconcilers.pods.liveness import Evidence
from controller.reconcilers.settings import MigrationLimits, Settings, Times
from tests.unit.controller.reconcilers.builders import UID, a_migration, a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
NOW_TEXT = "2026-01-01T00:01:00Z"
SOURCE = names.launcher_pod_name("testvm", UID, 1)
NEXT_RUN = names.launcher_pod_name("testvm", UID, 2)
TARGET = names.target_pod_name("testvm", "migration-uid")
SIDES: dict[str, Any] = {"sourcePod": SOURCE, "targetPod": TARGET, "sourceNode": "node1"}
NO_NODE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]


def a_machine(phase: str = "Running", pod: str = SOURCE, *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    vm = a_vm(phase=phase, attempts=[an_attempt()], **spec)
    vm["status"] |= {"podName": pod, "nodeName": "node1", **(status or {})}
    return vm


def a_target(**rest: Any) -> dict[str, Any]:
    return a_pod(migration="migration-uid", **{"node": "node2", **rest})


def seen(migration: dict[str, Any], **rest: Any) -> Observed:
    given: dict[str, Any] = {
        "vm": a_machine(), "source": a_pod(), "target": a_target(), "claims": {}, "now": NOW, "settings": Settings("launcher")
    }  # fmt: skip
    return Observed(migration=migration, **{**given, **rest})


def written(actions: tuple[Action, ...]) -> dict[str, Any]:
    return next(each.status for each in actions if isinstance(each, WriteStatus))


def told(actions: tuple[Action, ...]) -> tuple[str, str, str, str]:
    status = written(actions)
    found = condition(status["conditions"], "Succeeded")
    assert found is not None
    assert found["message"] == status["message"]
    return status["phase"], found["status"], found["reason"], status["message"]


def events(actions: tuple[Action, ...]) -> list[Emit]:
    return [each for each in actions if isinstance(each, Emit)]


def deleted(actions: tuple[Action, ...]) -> list[str]:
    return [each.name for each in actions if isinstance(each, DeletePod)]


RESTART = {"action": "Restart", "attempt": 2, "runStrategy": "RerunOnFailure"}
NOT_MIGRATABLE = {"type": "Migratable", "status": "False", "reason": "HostDisk", "message": "a disk is on its node"}


@pytest.mark.parametrize(
    ("vm", "reason", "message"),
    [
        (a_machine("Unknown"), "SourceUnknown", "the node of virtual machine testvm does not report"),
        (a_machine("Scheduled"), "NotRunning", "virtual machine testvm is not running: its phase is Scheduled"),
        (a_vm(), "NotRunning", "virtual machine testvm is not running: its phase is not set"),
        (a_machine(runStrategy="Halted"), "NotRunning", "virtual machine testvm is not running: runStrategy is Halted"),
        (a_machine(status={"request": RESTART}), "NotRunning", "virtual machine testvm is not running: restart was requested"),
        (a_machine(status={"conditions": [NOT_MIGRATABLE]}), "HostDisk", "a disk is on its node"),
        (
            a_machine(status={"conditions": [{"type": "Migratable", "status": "False"}]}),
            "NotMigratable",
            "the virtual machine cannot migrate",
        ),
    ],
)
def test_why_a_machine_cannot_migrate_now_is_said_and_is_the_end(vm: dict[str, Any], reason: str, message: str) -> None:
    actions = plan(seen(a_migration(), vm=vm, target=None))
    assert told(actions) == ("Failed", "False", reason, message)
    assert written(actions)["endTime"] == NOW_TEXT
    assert events(actions) == [Emit("Warning", "Failed", message)]


def test_machine_without_negative_migratable_condition_migrates() -> None:
    vm = a_machine(status={"conditions": [{"type": "Migratable", "status": "True"}, {"type": "Paused", "status": "False"}]})
    assert isinstance(plan(seen(a_migration(), vm=vm, target=None))[0], CreatePod)


def test_every_claim_that_two_nodes_cannot_use_is_named() -> None:
    vm = a_machine()
    vm["spec"]["domain"]["devices"]["disks"] = [{"type": "PersistentVolumeClaim", "source": {"name": name}} for name in ("a", "b")]
    message = "PersistentVolumeClaim a, b is not ReadWriteMany: two nodes cannot mount it at the same time (disk 'disk0', disk 'disk1')"
    assert told(plan(seen(a_migration(), vm=vm, target=None))) == ("Failed", "False", "DisksNotShared", message)


@pytest.mark.parametrize(("was", "now"), [(SOURCE, NEXT_RUN), (NEXT_RUN, SOURCE)])
def test_machine_in_another_pod_than_the_source_was_restarted(was: str, now: str) -> None:
    actions = plan(seen(a_migration(phase="Scheduling", **{**SIDES, "sourcePod": was}), vm=a_machine(pod=now)))
    assert told(actions) == ("Failed", "False", "SourceChanged", "virtual machine testvm was restarted after the migration was created")


def test_machine_with_an_unseen_pod_is_requeued() -> None:
    assert plan(seen(a_migration(), source=None, target=None)) == (Requeue(1),)


@pytest.mark.parametrize("node", ["node1", "", "node7"])
def test_begun_migration_records_its_sides_and_options(node: str) -> None:
    """The node comes from the VM's status, or from its pod until the status names it."""
    migration = a_migration(phase="Pending", startTime="2026-01-01T00:00:30Z")
    migration["spec"]["nodeSelector"] = {"disk": "ssd"}
    create, write, event = plan(seen(migration, vm=a_machine(status={"nodeName": node}), target=None))
    assert isinstance(create, CreatePod)
    assert create.pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert name_of(create.pod) == TARGET
    assert isinstance(write, WriteStatus)
    assert write.uid_field == "targetPodUID"
    assert write.status.pop("phaseTransitionTimestamps")[-1]["phase"] == "Scheduling"
    assert write.status == {
        "phase": "Scheduling",
        "observedGeneration": 1,
        "startTime": "2026-01-01T00:00:30Z",
        "sourceNode": node or "node1",
        "sourcePod": SOURCE,
        "sourcePodUID": uid_of(a_pod()),
        "targetPod": TARGET,
        "attempt": 1,
        "message": f"pod {TARGET} was created",
        "options": {"bandwidth": "0", "allowAutoConverge": False, "allowPause": False, "completionTimeoutSeconds": 150},
    }
    assert event == Emit("Normal", "SuccessfulCreate", f"created target pod {TARGET}")
    assert written(plan(seen(a_migration(), target=None)))["startTime"] == NOW_TEXT


@pytest.mark.parametrize("phase", ["", "Scheduling", "Running"])
def test_deletion_status_has_the_new_generation(phase: str) -> None:
    migration = a_migration(phase=phase, deleting=True, **({**SIDES, "observedGeneration": 1} if phase else {}))
    migration["metadata"]["generation"] = 2
    assert written(plan(seen(migration)))["observedGeneration"] == 2


def test_a_target_that_is_refused_is_said_once() -> None:
    other = {"type": "TargetScheduled", "status": "True"}
    migration = a_migration(phase="Pending", conditions=[other])
    actions = plan(seen(migration, target=None, refusal="exceeded quota"))
    assert told(actions) == ("Pending", "Unknown", "FailedCreate", "exceeded quota")
    assert events(actions) == [Emit("Warning", "FailedCreate", "exceeded quota")]
    assert other in written(actions)["conditions"]
    assert plan(seen({**migration, "status": written(actions)}, target=None, refusal="exceeded quota")) == ()


def test_unschedulable_target_is_reported_once() -> None:
    migration = a_migration(phase="Scheduling", **SIDES)
    assert plan(seen(migration, target=a_target(phase="Pending", bound_at=times.to_rfc3339(NOW)))) == (Requeue(2.0),)
    waiting = a_target(phase="Pending", node="")
    waiting["status"]["conditions"] = NO_NODE
    actions = plan(seen(migration, target=waiting))
    assert told(actions) == ("Scheduling", "Unknown", "Unschedulable", f"pod {TARGET}: 0/1 nodes")
    assert plan(seen({**migration, "status": written(actions)}, target=waiting)) == ()


def an_evacuation(began: float, phase: str = "Scheduling", **status: Any) -> dict[str, Any]:
    first = {"phase": "Pending", "time": times.to_rfc3339(NOW - timedelta(seconds=began))}
    later = {"phase": "Scheduling", "time": times.to_rfc3339(NOW)}
    given = {"phaseTransitionTimestamps": [first, later], "message": "pod x: 0/2 nodes", **SIDES, **status}
    made = a_migration(phase=phase, **given)
    made["metadata"]["labels"] = {"kubevirt.io/evicted-pod": "some-pod"}
    return made


UNBOUND = {"phase": "Pending", "node": ""}
PULLING = {"phase": "Pending", "node": "node2"}


@pytest.mark.parametrize(
    ("target", "limit", "reason", "message"),
    [
        (UNBOUND, 60, "Unschedulable", "no node could run the target pod within 60 s: pod x: 0/2 nodes"),
        (PULLING, 300, "TargetNotRunning", "the target pod did not run on node node2 within 300 s: pod x: 0/2 nodes"),
    ],
    ids=["no node", "an image is pulled"],
)
def test_evacuation_without_a_running_target_ends_in_time(target: dict[str, str], limit: int, reason: str, message: str) -> None:
    early = plan(seen(an_evacuation(limit - 1), target=a_target(**target)))
    assert [each.status["phase"] for each in early if isinstance(each, WriteStatus)] in ([], ["Scheduling"])
    assert min(each.seconds for each in early if isinstance(each, Requeue)) == 1.0
    for age in (limit, limit + 7200):
        assert told(plan(seen(an_evacuation(age), target=a_target(**target)))) == ("Failed", "False", reason, message)
    nearly = plan(seen(an_evacuation(limit), now=NOW - timedelta(seconds=0.1), target=a_target(**target)))
    assert min(each.seconds for each in nearly if isinstance(each, Requeue)) == 0.5


def test_an_evacuation_of_which_no_target_can_be_made_ends_too() -> None:
    began = times.to_rfc3339(NOW - timedelta(seconds=60))
    waiting = an_evacuation(60, "Pending", message="", startTime=began)
    said = "no node could run the target pod within 60 s: virt-controller could not create the target pod"
    assert told(plan(seen(waiting, target=None, refusal="quota"))) == ("Failed", "False", "Unschedulable", said)
    assert any(isinstance(each, CreatePod) for each in plan(seen(an_evacuation(59, "Pending"), target=None)))


@pytest.mark.parametrize(
    "refused", [{}, {"startTime": times.to_rfc3339(NOW - timedelta(seconds=9000))}], ids=["never tried", "tried long ago"]
)
@pytest.mark.parametrize("made", ["an eviction", "people"])
def test_migration_is_tried_after_any_wait_for_its_turn(made: str, refused: dict[str, str]) -> None:
    waited = (an_evacuation if made == "an eviction" else by_people)(9999, phase="Pending", **refused)
    assert any(isinstance(each, CreatePod) for each in plan(seen(waited, target=None)))
    refusal = plan(seen(waited, target=None, refusal="quota"))
    assert told(refusal)[:3] == (("Failed", "False", "Unschedulable") if refused else ("Pending", "Unknown", "FailedCreate"))


def by_people(began: float, **status: Any) -> dict[str, Any]:
    made = an_evacuation(began, **status)
    del made["metadata"]["labels"]
    return made


def test_users_migration_has_its_own_scheduling_time() -> None:
    target, limits = a_target(**UNBOUND), MigrationLimits(scheduling_seconds=200)
    assert plan(seen(by_people(198), target=target, limits=limits)) == (Requeue(2.0),)
    for age in (200, 9999):
        said = "no node could run the target pod within 200 s: pod x: 0/2 nodes"
        assert told(plan(seen(by_people(age), target=target, limits=limits))) == ("Failed", "False", "Unschedulable", said)
    assert plan(seen(by_people(9999), target=target, limits=MigrationLimits(scheduling_seconds=0))) == ()
    assert MigrationLimits().scheduling_seconds == 300


def test_users_migration_has_its_own_time_for_the_target_to_run() -> None:
    bound = times.to_rfc3339(NOW - timedelta(seconds=RUN_SECONDS - 3))
    migration, patient = by_people(9999), MigrationLimits(scheduling_seconds=9999)
    early = plan(seen(migration, target=a_target(**PULLING, bound_at=bound), limits=patient))
    assert told(early)[:3] == ("Scheduling", "Unknown", "ContainerCreating")
    assert min(each.seconds for each in early if isinstance(each, Requeue)) == 3.0
    late = plan(seen(migration, now=NOW + timedelta(seconds=3), target=a_target(**PULLING, bound_at=bound), limits=patient))
    said = f"the target pod did not run on node node2 within {RUN_SECONDS} s: pod x: 0/2 nodes"
    assert told(late) == ("Failed", "False", "TargetNotRunning", said)
    unknown = a_target(**PULLING)
    del unknown["status"]["conditions"]
    assert told(plan(seen(migration, target=unknown)))[2] == "TargetNotRunning"
    assert plan(seen(by_people(RUN_SECONDS - 1), target=unknown)) == (Requeue(1.0),)


@pytest.mark.parametrize("made", [an_evacuation, by_people])
def test_the_time_counts_from_when_its_turn_came(made: Any) -> None:
    migration = made(9999, startTime=times.to_rfc3339(NOW - timedelta(seconds=50)))
    assert [each.seconds for each in plan(seen(migration, target=a_target(**UNBOUND)))][-1] in (10.0, 250.0)  # type: ignore[union-attr]  # it waits


def test_refused_target_starts_the_scheduling_time() -> None:
    actions = plan(seen(a_migration(), target=None, refusal="quota"))
    assert written(actions)["startTime"] == NOW_TEXT
    earlier = "2026-01-01T00:00:30Z"
    again = plan(seen(a_migration(phase="Pending", startTime=earlier), target=None, refusal="quota"))
    assert written(again)["startTime"] == earlier


WAITS = Turn(may_begin=False, message="2 migrations are leaving node node1; 1st in the queue", is_drain=True)


@pytest.mark.parametrize("phase", ["", "Pending"])
def test_queued_migration_waits_and_says_so(phase: str) -> None:
    actions = plan(seen(a_migration(phase=phase), target=None, turn=WAITS))
    assert told(actions) == ("Pending", "Unknown", "Queued", WAITS.message)
    assert [type(each).__name__ for each in actions] == ["WriteStatus", "Emit", "Requeue"]
    assert events(actions) == [Emit("Normal", "Queued", WAITS.message)]
    assert actions[-1] == Requeue(Times().queue)
    waiting = {**a_migration(phase="Pending"), "status": written(actions)}
    assert plan(seen(waiting, target=None, turn=WAITS)) == (Requeue(Times().queue),)
    moved_up = plan(seen(waiting, target=None, turn=Turn(may_begin=False, message="1 migration is leaving node node1; 1st in the queue")))
    assert [type(each).__name__ for each in moved_up] == ["WriteStatus", "Requeue"]
    assert any(isinstance(each, CreatePod) for each in plan(seen(waiting, target=None)))


def test_queued_migration_is_cancelled_or_fails_at_once() -> None:
    assert told(plan(seen(a_migration(phase="Pending", deleting=True), target=None, turn=WAITS)))[0] == "Cancelled"
    assert told(plan(seen(a_migration(phase="Pending"), vm=a_machine("Unknown"), target=None, turn=WAITS)))[2] == "SourceUnknown"
    assert told(plan(seen(a_migration(phase="Pending"), vm=None, target=None, turn=WAITS)))[2] == "VirtualMachineNotFound"


@pytest.mark.parametrize("phase", ["Scheduling", "PreparingTarget"])
def test_begun_migration_waits_for_no_turn(phase: str) -> None:
    assert plan(seen(a_migration(phase=phase, **SIDES), turn=WAITS)) == plan(seen(a_migration(phase=phase, **SIDES)))
    pending = a_migration(phase="Pending")
    assert any(isinstance(each, CreatePod) for each in plan(seen(pending, target=a_target(), turn=WAITS)))


def test_evacuation_waits_for_its_turn_while_its_node_is_drained() -> None:
    assert told(plan(seen(an_evacuation(9999, "Pending"), target=None, turn=WAITS)))[0] == "Pending"
    nobody = dataclasses.replace(WAITS, is_drain=False)
    assert told(plan(seen(an_evacuation(59, "Pending"), target=None, turn=nobody)))[0] == "Pending"
    said = f"it did not start within 60 s: {WAITS.message}"
    for age in (60, 61):
        assert told(plan(seen(an_evacuation(age, "Pending"), target=None, turn=nobody))) == ("Failed", "False", "Queued", said)
    assert told(plan(seen(by_people(9999, phase="Pending"), target=None, turn=nobody)))[0] == "Pending"
    new = an_evacuation(9999)
    del new["status"]
    assert told(plan(seen(new, target=None, turn=nobody)))[0] == "Pending"


def test_new_evacuation_starts_at_any_age() -> None:
    new = an_evacuation(0)
    del new["status"]
    new["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
    assert any(isinstance(each, CreatePod) for each in plan(seen(new, target=None)))


def test_evacuation_with_a_running_target_continues_at_any_age() -> None:
    assert written(plan(seen(an_evacuation(301), target=a_target())))["phase"] == "PreparingTarget"


def test_a_target_that_runs_is_given_its_time() -> None:
    write, event, again = plan(seen(a_migration(phase="Scheduling", **SIDES)))
    assert isinstance(write, WriteStatus)
    assert {key: write.status[key] for key in ("phase", "targetNode", "targetPodUID", "message")} == {
        "phase": "PreparingTarget",
        "targetNode": "node2",
        "targetPodUID": uid_of(a_target()),
        "message": "virt-handler of node node2 is preparing the target",
    }
    assert event == Emit("Normal", "Scheduled", f"target pod {TARGET} runs on node node2")
    assert again == Requeue(PREPARE_SECONDS)


@pytest.mark.parametrize(
    ("waited", "left"),
    [(0.0, PREPARE_SECONDS), (PREPARE_SECONDS - 2.0, 2.0), (PREPARE_SECONDS - 0.1, 0.5), (PREPARE_SECONDS, None), (1e6, None)],
)
def test_a_target_is_given_its_time_from_when_it_ran_and_no_more(waited: float, left: float | None) -> None:
    stamps = [{"phase": "Scheduling", "time": "2026-01-01T00:00:00Z"}, {"phase": "PreparingTarget", "time": NOW_TEXT}]
    migration = a_migration(phase="PreparingTarget", phaseTransitionTimestamps=stamps, targetNode="node2", **SIDES)
    actions = plan(seen(migration, now=NOW + timedelta(seconds=waited)))
    if left is not None:
        assert actions == (Requeue(left),)
    else:
        message = f"virt-handler of node node2 did not prepare the target within {PREPARE_SECONDS} s"
        assert told(actions) == ("Failed", "False", "TargetNotReady", message)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        ({"vm": None}, ("Failed", "False", "VirtualMachineNotFound", "the virtual machine was deleted")),
        ({"vm": a_machine("Succeeded")}, ("Failed", "False", "NotRunning", "virtual machine testvm ended: Succeeded")),
        ({"vm": a_machine(pod=TARGET)}, ("Succeeded", "True", "Succeeded", "the guest moved to node node2")),
        ({"target": None}, ("Failed", "False", "TargetPodEnded", f"target pod {TARGET} ended: it was deleted")),
        (
            {"target": a_target(phase="Failed", exit_code=1)},
            ("Failed", "False", "TargetPodEnded", f"target pod {TARGET} ended: crashed: QEMU (exit code 1)"),
        ),
        (
            {"target": None, "source": None},
            ("Failed", "False", "TargetPodEnded", f"target pod {TARGET} ended: it was deleted"),
        ),
    ],
)
def test_running_migration_ends_when_the_pods_leave_no_doubt(observed: dict[str, Any], expected: tuple[str, str, str, str]) -> None:
    actions = plan(seen(a_migration(phase="Running", targetNode="node2", **SIDES), **observed))
    assert told(actions) == expected
    assert events(actions) == [Emit("Warning" if expected[0] == "Failed" else "Normal", expected[0], expected[3])]


@pytest.mark.parametrize("target", [SOURCE[:-1], f"{SOURCE}0"])
def test_guest_counts_as_moved_only_in_the_exact_target_pod(target: str) -> None:
    assert plan(seen(a_migration(phase="Running", **{**SIDES, "targetPod": target}))) == ()


def test_deleted_target_is_named_before_the_guest_moves() -> None:
    actions = plan(seen(a_migration(phase="Scheduling", **SIDES), target=a_target(deleting=True)))
    assert told(actions) == ("Failed", "False", "TargetPodDeleted", f"target pod {TARGET} is being deleted")


def test_deletion_of_a_migration_reports_its_consequence() -> None:
    early = plan(seen(a_migration(deleting=True), target=None))
    assert told(early) == ("Cancelled", "False", "Cancelled", "the migration was deleted before it began")
    assert events(early) == [Emit("Normal", "Cancelled", "the migration was deleted before it began")]
    late = plan(seen(a_migration(phase="Running", deleting=True, **SIDES)))
    assert told(late) == ("Running", "Unknown", "Cancelling", "waiting for virt-handler of the source node to stop the migration")


GONE = f"source pod {SOURCE} ended: it was deleted"
POWERED_OFF = f"source pod {SOURCE} ended: shutdown: the guest powered off"


@pytest.mark.parametrize(("source", "message"), [(None, GONE), (a_pod(phase="Succeeded", exit_code=0), POWERED_OFF)])
def test_silent_end_of_the_source_is_awaited_then_reported(source: dict[str, Any] | None, message: str) -> None:
    migration = a_migration(phase="Running", **SIDES)
    write, again = plan(seen(migration, source=source))
    assert isinstance(write, WriteStatus)
    assert again == Requeue(LAST_WORDS_SECONDS)
    found = condition(write.status["conditions"], departure.RELEASED)
    assert found is not None
    assert (found["status"], found["message"]) == ("False", message)
    later = {**migration, "status": write.status}
    for waited, left in ((0.0, LAST_WORDS_SECONDS), (LAST_WORDS_SECONDS - 2.0, 2.0), (LAST_WORDS_SECONDS - 0.1, 0.5)):
        assert plan(seen(later, source=source, now=NOW + timedelta(seconds=waited))) == (Requeue(left),)
    for waited in (LAST_WORDS_SECONDS, LAST_WORDS_SECONDS + 1):
        late = plan(seen(later, source=source, now=NOW + timedelta(seconds=waited)))
        assert told(late) == ("Failed", "False", "SourcePodEnded", message)


def test_a_source_on_a_fenced_node_has_ended() -> None:
    off = frozenset({"node1"})
    write, _ = plan(seen(a_migration(phase="Running", **SIDES), evidence=Evidence(Unreachable(whole=off, off=off))))
    assert isinstance(write, WriteStatus)
    found = condition(write.status["conditions"], departure.RELEASED) or {}
    assert found["message"] == f"source pod {SOURCE} ended: node node1 is off, as a person states"


def test_release_by_a_pod_quotes_its_last_message() -> None:
    source = a_pod(phase="Succeeded", exit_code=0)
    source["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "migrated: the guest continues in another pod"
    found = condition(written(plan(seen(a_migration(phase="Running", **SIDES), source=source)))["conditions"], departure.RELEASED)
    assert found is not None
    expected = f"source pod {SOURCE} ended: migrated: the guest continues in another pod"
    assert (found["status"], found["reason"], found["message"]) == ("True", departure.BY_POD, expected)


@pytest.mark.parametrize(
    ("waited", "left"),
    [(0.0, SOURCE_END_SECONDS), (SOURCE_END_SECONDS - 2.0, 2.0), (SOURCE_END_SECONDS - 0.1, 0.5), (SOURCE_END_SECONDS, None), (1e6, None)],
)
def test_a_source_is_deleted_once_it_had_its_time_to_end(waited: float, left: float | None) -> None:
    migration = a_migration(phase="Succeeded", endTime=NOW_TEXT, **SIDES)
    actions = plan(seen(migration, vm=a_machine(pod=TARGET), now=NOW + timedelta(seconds=waited)))
    if left is not None:
        assert actions == (Requeue(left),)
    else:
        assert actions == (DeletePod(SOURCE, uid_of(a_pod())), RemoveFinalizer(names.MIGRATION_FINALIZER))


def test_failed_migration_of_a_deleted_machine_deletes_both_pods() -> None:
    assert deleted(plan(seen(a_migration(phase="Failed", endTime=NOW_TEXT, **SIDES), vm=None))) == [SOURCE, TARGET]


@pytest.mark.parametrize("vm", [None, a_machine()])
def test_success_without_recorded_source_waits_for_no_pod(vm: dict[str, Any] | None) -> None:
    actions = plan(seen(a_migration(phase="Succeeded", endTime=NOW_TEXT), vm=vm, target=None))
    assert actions == (RemoveFinalizer(names.MIGRATION_FINALIZER),)


def test_source_is_not_awaited_when_the_end_time_is_missing() -> None:
    assert deleted(plan(seen(a_migration(phase="Succeeded", **SIDES), vm=a_machine(pod=TARGET)))) == [SOURCE]


@pytest.mark.parametrize(("phase", "lost"), [("Succeeded", SOURCE), ("Failed", TARGET), ("Cancelled", TARGET)])
@pytest.mark.parametrize("deleting", [False, True])
def test_losing_pod_of_a_restarted_machine_is_deleted_once(phase: str, lost: str, *, deleting: bool) -> None:
    rest = {"source": a_pod(deleting=deleting), "target": a_target(deleting=deleting)}
    actions = plan(seen(a_migration(phase=phase, **SIDES), vm=a_machine(pod=NEXT_RUN), **rest))
    assert deleted(actions) == ([] if deleting else [lost])
    assert actions[-1] == RemoveFinalizer(names.MIGRATION_FINALIZER)


def test_a_pod_that_took_no_part_is_left_alone() -> None:
    assert deleted(plan(seen(a_migration(phase="Failed", **SIDES), vm=None, source=a_pod(2), target=None))) == []


def test_machine_older_than_the_success_is_requeued_soon() -> None:
    assert plan(seen(a_migration(phase="Succeeded", endTime=NOW_TEXT, **SIDES), source=None)) == (Requeue(STALE_SECONDS),)


def test_cleaned_up_ended_migration_needs_no_action() -> None:
    migration = a_migration(phase="Failed", **SIDES)
    migration["metadata"]["finalizers"] = ["example.com/keep"]
    assert plan(seen(migration)) == ()


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_no_moment_is_too_far_away_to_be_compared(moment: str) -> None:
    is_to_come = moment.startswith("9")
    stamps: dict[str, Any] = {"phaseTransitionTimestamps": [{"phase": "PreparingTarget", "time": moment}]}
    preparing = plan(seen(a_migration(phase="PreparingTarget", **SIDES, **stamps)))
    withheld = [
        {"type": departure.RELEASED, "status": "False", "reason": departure.SOURCE_SILENT, "message": "", "lastTransitionTime": moment}
    ]
    silent = plan(seen(a_migration(phase="Running", **SIDES, conditions=withheld), source=a_pod(phase="Failed", exit_code=1)))
    moved = plan(seen(a_migration(phase="Succeeded", **SIDES, endTime=moment), vm=a_machine(pod=TARGET)))
    if is_to_come:
        assert (preparing, silent, moved) == ((Requeue(PREPARE_SECONDS),), (Requeue(LAST_WORDS_SECONDS),), (Requeue(SOURCE_END_SECONDS),))
    else:
        assert (told(preparing)[2], told(silent)[2]) == ("TargetNotReady", "SourcePodEnded")
        assert [type(each).__name__ for each in moved] == ["DeletePod", "RemoveFinalizer"]
