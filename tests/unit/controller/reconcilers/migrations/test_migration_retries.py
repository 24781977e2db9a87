from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import condition, name_of, uid_of
from apiserver.apis.virt.lifecycle import departure, migration_attempts, phases, progress
from apiserver.apis.virt.places import names
from apiserver.apis.virt.v1alpha1 import status_validation
from controller.reconcilers.actions import Action, CreatePod, DeletePod, Emit, Requeue, WriteStatus
from controller.reconcilers.migrations.migration_bounds import NODE_SECONDS
from controller.reconcilers.migrations.migration_plan import SOURCE_WORD_SECONDS, Observed, plan, relies_on_node
from controller.reconcilers.migrations.migration_queue import Turn
from controller.reconcilers.migrations.migration_retries import END_SECONDS, GRACE_SECONDS
from controller.reconcilers.nodes.node_reports import Unreachable
from controller.reconcilers.pods.absences import TARGET_MAY_RUN
from controller.reconcilers.pods.liveness import LOST_LOOK_SECONDS, Absent, Evidence
from controller.reconcilers.settings import Settings, Times
from tests.unit.controller.reconcilers.builders import UID, a_migration, a_pod, a_vm, an_attempt

BACK_OFF = Times().back_off
NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
SOURCE = names.launcher_pod_name("testvm", UID, 1)
TARGET = names.target_pod_name("testvm", "migration-uid")
SECOND = names.target_pod_name("testvm", "migration-uid-2")
BEGUN: dict[str, Any] = {
    "sourcePod": SOURCE,
    "sourcePodUID": uid_of(a_pod()),
    "sourceNode": "node1",
    "targetPod": TARGET,
    "targetPodUID": f"uid-of-{TARGET}",
    "targetNode": "node2",
    "targetPodIPs": ["10.0.1.2"],
    "targetAddress": "10.0.0.2:8445",
    "policy": "slow",
    "options": {"bandwidth": "5Mi"},
    "startTime": "2026-01-01T00:00:00Z",
    "attempt": 1,
}
BROKE = {"number": 1, "reason": "ConnectionBroken", "message": "the connection broke", "endTime": "2026-01-01T00:00:59Z"}
ENDED = {"number": 1, "reason": "TargetPodEnded", "message": "target pod t ended: crashed", "endTime": "2026-01-01T00:01:00Z"}


def ago(seconds: float) -> str:
    return times.to_rfc3339(NOW - timedelta(seconds=seconds))


def a_running_vm() -> dict[str, Any]:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    vm["status"] |= {"podName": SOURCE, "nodeName": "node1"}
    return vm


def a_target(**rest: Any) -> dict[str, Any]:
    return a_pod(migration="migration-uid", **{"node": "node2", **rest})


def seen(
    phase: str = "Running",
    *,
    deleting: bool = False,
    status: dict[str, Any] | None = None,
    lingers: float | None = None,
    unreachable: Unreachable | None = None,
    **rest: Any,
) -> Observed:
    absent = () if lingers is None else (Absent(TARGET, f"uid-of-{TARGET}", "node2", lingers, migration="move"),)
    migration = a_migration(phase=phase, deleting=deleting, **{**BEGUN, **(status or {})})
    given: dict[str, Any] = {
        "vm": a_running_vm(),
        "source": a_pod(),
        "target": None,
        "claims": {},
        "now": NOW,
        "settings": Settings("launcher"),
        "evidence": Evidence(unreachable or Unreachable(), absent),
    }
    return Observed(migration, **{**given, **rest})


def written(actions: tuple[Action, ...]) -> dict[str, Any]:
    status = next(each.status for each in actions if isinstance(each, WriteStatus))
    assert not status_validation.validate_migration_status({"status": status}, {})
    return status


def kinds(actions: tuple[Action, ...]) -> list[str]:
    return [type(each).__name__ for each in actions]


def a_retry(since: float = BACK_OFF[0], phase: str = "Pending", **rest: Any) -> Observed:
    stamps = [{"phase": "Running", "time": ago(500)}, {"phase": "Pending", "time": ago(since)}]
    status = {"attempt": 2, "attempts": [BROKE], "phaseTransitionTimestamps": stamps, "targetPodUID": None, "targetNode": None}
    return seen(phase, status={**status, **rest.pop("status", {})}, **rest)


def test_broken_connection_is_retried_once_the_target_is_gone() -> None:
    conditions = [
        {"type": progress.CONVERGING, "status": "False", "reason": progress.WRITES_FASTER, "message": ""},
        {"type": departure.RELEASED, "status": "False", "reason": departure.SOURCE_SILENT, "message": ""},
    ]
    first = seen(status={"attempts": [BROKE], "progress": {"totalBytes": 1}, "conditions": conditions})
    actions = plan(first)
    assert kinds(actions) == ["WriteStatus", "Emit", "Requeue"]
    status = written(actions)
    assert (status["phase"], status["attempt"], status["attempts"]) == ("Pending", 2, [BROKE])
    assert not {"targetNode", "targetPod", "targetPodUID", "targetPodIPs", "targetAddress", "progress"} & status.keys()
    kept = ("sourcePod", "sourcePodUID", "sourceNode", "policy", "options", "startTime")
    assert {key: status[key] for key in kept} == {key: BEGUN[key] for key in kept}
    assert [each["type"] for each in status["conditions"]] == ["Succeeded"]
    told = condition(status["conditions"], "Succeeded")
    assert told is not None
    assert (told["status"], told["reason"]) == ("Unknown", "AttemptFailed")
    message = f"attempt 1 of 3 failed: the connection broke; the next attempt starts in {BACK_OFF[0]} s"
    assert (status["message"], told["message"]) == (message, message)
    assert actions[1] == Emit("Warning", "AttemptFailed", message)
    assert actions[2] == Requeue(BACK_OFF[0])


@pytest.mark.parametrize(
    ("phase", "reason"),
    [(phase, "ConnectionBroken") for phase in ("Running", "PreparingTarget", "TargetReady")] + [("TargetReady", "TargetPodDeleted")],
)
def test_retry_waits_while_the_last_target_may_run(phase: str, reason: str) -> None:
    """A paused QEMU may hold disk locks."""
    failed = [{**BROKE, "reason": reason}]
    actions = plan(seen(phase, status={"attempts": failed}, target=a_target()))
    assert kinds(actions) == ["WriteStatus", "DeletePod", "Requeue"]
    assert actions[1] == DeletePod(TARGET, f"uid-of-{TARGET}", GRACE_SECONDS)
    status = written(actions)
    assert (status["phase"], status["attempt"]) == (phase, 1)
    assert status["message"] == f"attempt 1 of 3 failed: the connection broke; the next attempt starts when target pod {TARGET} has ended"
    going = a_target(deleting=True)
    going["metadata"] |= {"deletionTimestamp": ago(0), "deletionGracePeriodSeconds": GRACE_SECONDS}
    waiting = {"attempts": failed, **{key: status[key] for key in ("message", "observedGeneration")}}
    assert plan(seen(phase, status=waiting, target=going)) == (Requeue(END_SECONDS),)
    going["metadata"]["deletionGracePeriodSeconds"] = 120
    assert DeletePod(TARGET, f"uid-of-{TARGET}", GRACE_SECONDS) in plan(seen(phase, status=waiting, target=going))
    over = a_target(phase="Failed", exit_code=1, deleting=True)
    assert written(plan(seen(phase, status=waiting, target=over)))["phase"] == "Pending"


def test_a_target_that_does_not_end_is_the_end() -> None:
    going = a_target(deleting=True)
    going["metadata"] |= {"deletionTimestamp": ago(END_SECONDS), "deletionGracePeriodSeconds": GRACE_SECONDS}
    status = written(plan(seen(status={"attempts": [BROKE]}, target=going)))
    assert status["phase"] == "Failed"
    assert f"target pod {TARGET} does not end" in status["message"]
    assert "the connection broke" in status["message"]


def test_the_next_attempt_waits_a_while_and_goes_to_another_pod() -> None:
    assert plan(a_retry(1)) == (Requeue(BACK_OFF[0] - 1),)
    waiting = Turn(may_begin=False, message="others are first")
    for turn in (Turn(), waiting):
        actions = plan(a_retry(turn=turn))
        create, write = actions[:2]
        assert isinstance(create, CreatePod)
        assert isinstance(write, WriteStatus)
        assert name_of(create.pod) == SECOND
        assert SECOND != TARGET
        assert create.pod["metadata"]["labels"][names.MIGRATION_LABEL] == "migration-uid"
        status = written(actions)
        assert (status["phase"], status["attempt"], status["targetPod"], write.uid_field) == ("Scheduling", 2, SECOND, "targetPodUID")
        assert (status["startTime"], status["options"]) == (BEGUN["startTime"], {"bandwidth": "5Mi"})


def test_the_next_attempt_rather_goes_to_another_node() -> None:
    failed = [{**BROKE, "targetNode": "node3"}, {**BROKE, "number": 0, "targetNode": "node3"}, {**ENDED, "number": 9}]
    retry = a_retry()
    retry = replace(retry, migration={**retry.migration, "status": {**retry.migration["status"], "attempts": failed}})
    create = plan(retry)[0]
    assert isinstance(create, CreatePod)
    affinity = create.pod["spec"]["affinity"]["nodeAffinity"]
    other = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node3"]}]}
    assert affinity["preferredDuringSchedulingIgnoredDuringExecution"] == [{"weight": 100, "preference": other}]
    required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert required == [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node1"]}]}]


def test_retry_drops_the_conditions_of_the_last_attempt() -> None:
    said = [
        {"type": "Succeeded", "status": "Unknown", "reason": "AttemptFailed", "message": "the next one begins in 5 s"},
        {"type": "Other", "status": "True", "reason": "Other", "message": ""},
    ]
    made = written(plan(a_retry(status={"conditions": said})))
    assert (made["phase"], made["conditions"]) == ("Scheduling", said[1:])
    placed = plan(a_retry(0, "Scheduling", target=a_pod(migration="migration-uid-2", node="node2"), status={"conditions": said}))
    assert (written(placed)["phase"], written(placed)["conditions"]) == ("PreparingTarget", said[1:])
    assert "conditions" not in written(plan(a_retry()))


def test_a_policy_that_was_edited_meanwhile_changes_nothing() -> None:
    policy = {"metadata": {"name": "other"}, "spec": {"bandwidth": "10Mi"}}
    status = written(plan(a_retry(policy=policy)))
    assert (status["policy"], status["options"]) == ("slow", {"bandwidth": "5Mi"})


def test_a_second_target_is_for_the_same_processors() -> None:
    vm = a_running_vm()
    vm["spec"]["domain"]["cpu"] = {"model": "host-model"}
    source = a_pod()
    source["spec"]["containers"][0]["resources"]["limits"][names.KVM_RESOURCE] = "1"
    again = a_retry(vm=vm, source=source)
    assert relies_on_node(again.migration, vm, source)


def test_each_attempt_has_its_own_time_for_a_node() -> None:
    pending = a_target(phase="Pending", node="")
    for since, phase in ((NODE_SECONDS, "Scheduling"), (290, "Scheduling"), (301, "Failed")):
        actions = plan(a_retry(since, "Scheduling", target=pending, now=NOW))
        ended = [each.status["phase"] for each in actions if isinstance(each, WriteStatus)]
        assert (ended or ["Scheduling"]) == [phase]


def test_the_third_failure_is_the_end() -> None:
    earlier = [BROKE, {**BROKE, "number": 2}]
    last = {**BROKE, "number": 3}
    again = written(plan(seen(status={"attempt": 2, "attempts": earlier})))
    assert (again["phase"], again["attempt"]) == ("Pending", 3)
    assert f"in {BACK_OFF[1]} s" in again["message"]
    actions = plan(seen(status={"attempt": 3, "attempts": [*earlier, last]}))
    status = written(actions)
    assert (status["phase"], status["message"]) == ("Failed", "the connection broke; this was the last of 3 attempts")
    said = condition(status["conditions"], "Succeeded")
    assert said is not None
    assert (said["status"], said["reason"]) == ("False", "ConnectionBroken")


def test_failure_of_an_earlier_attempt_does_not_count() -> None:
    assert plan(seen(status={"attempt": 2, "attempts": [BROKE]}, target=a_target())) == ()


def test_cancelled_migration_or_stopped_guest_is_not_retried() -> None:
    for phase in ("Running", "PreparingTarget", "TargetReady"):
        for message, told in ((BROKE["message"], "the connection broke"), ("", "no reason given")):
            status = written(plan(seen(phase, deleting=True, status={"attempts": [{**BROKE, "message": message}]})))
            assert status["phase"] == "Cancelled"
            assert status["message"] == f"deleted after a failed attempt: {told}" or phase == "PreparingTarget"
        off = a_running_vm()
        off["spec"]["runStrategy"] = "Halted"
        status = written(plan(seen(phase, status={"attempts": [BROKE]}, vm=off)))
        assert status["phase"] == "Failed"
        assert "is not running" in status["message"]
    assert written(plan(a_retry(0, deleting=True)))["phase"] == "Cancelled"


def test_a_guest_that_left_is_never_sent_again() -> None:
    left = [{"type": departure.RELEASED, "status": "True", "reason": departure.BY_HANDLER, "message": ""}]
    assert plan(seen(status={"attempts": [BROKE], "conditions": left}, target=a_target())) == ()


@pytest.mark.parametrize("phase", ["PreparingTarget", "TargetReady"])
@pytest.mark.parametrize("target", [None, a_target(phase="Failed", exit_code=1)])
def test_a_target_that_ended_before_anything_moved_is_replaced(phase: str, target: dict[str, Any] | None) -> None:
    status = written(plan(seen(phase, target=target)))
    assert (status["phase"], status["attempt"]) == ("Pending", 2)
    entry = status["attempts"][0]
    assert (entry["number"], entry["reason"], entry["targetPod"], entry["targetNode"]) == (1, "TargetPodEnded", TARGET, "node2")
    assert entry["message"] in status["message"]


def test_target_rejected_without_devices_is_replaced() -> None:
    """virt-handler is a device plugin: while it restarts, its node admits no launcher."""
    rejected = a_target(phase="Failed")
    rejected["status"] |= {"reason": "UnexpectedAdmissionError", "message": "no healthy devices present"}
    status = written(plan(seen("Scheduling", target=rejected, status={"targetNode": None, "targetPodUID": None})))
    assert (status["phase"], status["attempt"], status["attempts"][0]["reason"]) == ("Pending", 2, "TargetPodEnded")
    assert status["attempts"][0]["targetNode"] == "node2", "which the next one avoids"
    assert "UnexpectedAdmissionError: no healthy devices present" in status["message"]
    rejected["status"]["reason"] = "NodeAffinity"
    assert written(plan(seen("Scheduling", target=rejected)))["phase"] == "Failed", "the next one would not fit either"


def test_target_deleted_before_ready_is_replaced_once_gone() -> None:
    going = a_target(deleting=True)
    going["metadata"] |= {"deletionTimestamp": ago(0), "deletionGracePeriodSeconds": GRACE_SECONDS}
    status = written(plan(seen("PreparingTarget", target=going)))
    assert (status["phase"], status["attempt"], status["attempts"][0]["reason"]) == ("PreparingTarget", 1, "TargetPodDeleted")


def test_target_end_during_the_move_waits_for_the_source() -> None:
    """The guest may have moved completely into the ended pod; then a second attempt has nothing to move."""
    actions = plan(seen(target=a_target(phase="Failed", exit_code=1)))
    status = written(actions)
    assert (status["phase"], status["attempt"], status["attempts"][0]["reason"]) == ("Running", 1, "TargetPodEnded")
    assert actions[-1] == Requeue(SOURCE_WORD_SECONDS)
    silent = {"attempts": [ENDED]}
    for waited, left in ((0, SOURCE_WORD_SECONDS), (SOURCE_WORD_SECONDS - 1, 1)):
        assert plan(seen(status=silent, now=NOW + timedelta(seconds=waited))) == (Requeue(left),)
    for waited in (SOURCE_WORD_SECONDS, SOURCE_WORD_SECONDS + 1):
        assert written(plan(seen(status=silent, now=NOW + timedelta(seconds=waited))))["phase"] == "Failed"
    released = {"conditions": [RELEASE]}
    assert written(plan(seen(status=released, target=a_target(phase="Failed", exit_code=1))))["phase"] == "Failed"
    assert written(plan(seen(status={"attempts": [{**BROKE, "endTime": ENDED["endTime"]}]})))["phase"] == "Pending"


RELEASE = {"type": departure.RELEASED, "status": "True", "reason": departure.BY_HANDLER, "message": ""}


@pytest.mark.parametrize("failure", [BROKE, ENDED, {**BROKE, "number": 3}])
@pytest.mark.parametrize("source", [a_pod(), None, a_pod(phase="Failed", exit_code=1)])
@pytest.mark.parametrize("conditions", [[], [RELEASE]])
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("deleting", [False, True])
def test_retry_waits_while_the_guest_may_run_in_a_missing_target(
    failure: dict[str, Any], source: dict[str, Any] | None, conditions: list[dict[str, Any]], *, ended: bool, deleting: bool
) -> None:
    """A forced deletion removes the object before the containers end."""
    vm = a_running_vm()
    if ended:
        vm["status"]["phase"] = "Stopped"
    given: dict[str, Any] = {"status": {"attempt": failure["number"], "attempts": [failure], "conditions": conditions}}
    given |= {"source": source, "vm": vm, "deleting": deleting, "now": NOW + timedelta(seconds=SOURCE_WORD_SECONDS)}
    actions = plan(seen(**given, lingers=40.0))
    assert kinds(actions) == ["WriteStatus", "Emit", "Requeue"]
    assert actions[-1] == Requeue(40.0)
    status = written(actions)
    assert (status["phase"], status["attempt"], status["attempts"]) == ("Running", failure["number"], [failure])
    said = condition(status["conditions"], "Succeeded")
    assert said is not None
    assert (said["status"], said["reason"], said["message"]) == ("Unknown", TARGET_MAY_RUN, status["message"])
    assert f"target pod {TARGET} was deleted, but it is not certain that its containers ended" in status["message"]
    given["status"] = {key: value for key, value in status.items() if key != "phase"}
    assert plan(seen(**given, lingers=40.0)) == (Requeue(40.0),)
    assert plan(seen(**given, lingers=0.0, unreachable=Unreachable(of_kubelet={"node2": 17.0}))) == (Requeue(17.0),)
    lost, off = Unreachable(whole=frozenset({"node2"})), Unreachable(whole=frozenset({"node2"}), off=frozenset({"node2"}))
    assert plan(seen(**given, lingers=0.0, unreachable=lost)) == (Requeue(LOST_LOOK_SECONDS),)
    for rest in ({"lingers": 0.0}, {"lingers": 40.0, "unreachable": off}):
        assert written(plan(seen(**given, **rest)))["phase"] in ("Pending", "Failed", "Cancelled")


def test_missing_target_is_recorded_and_the_source_has_its_time() -> None:
    actions = plan(seen(lingers=40.0))
    status = written(actions)
    assert (status["phase"], status["attempts"][0]["reason"]) == ("Running", "TargetPodEnded")
    assert actions[-2:] == (Requeue(SOURCE_WORD_SECONDS), Requeue(40.0))
    for waits in ({"conditions": [RELEASE]}, {"attempt": None}):
        status = written(plan(seen(status=waits, lingers=40.0)))
        assert (status["phase"], status.get("attempts")) == ("Running", None)


def test_moved_or_unsent_guest_waits_for_no_target() -> None:
    moved = a_running_vm()
    moved["status"] |= {"podName": TARGET, "nodeName": "node2"}
    assert written(plan(seen(vm=moved, lingers=40.0)))["phase"] == "Succeeded"
    for phase in ("PreparingTarget", "TargetReady"):
        for failed in ([], [{**ENDED, "reason": "TargetPodDeleted"}]):
            assert written(plan(seen(phase, lingers=40.0, status={"attempts": failed})))["phase"] == "Pending"
    assert plan(seen("TargetReady", status={"conditions": [RELEASE]}, lingers=40.0))[-1] == Requeue(40.0)


def test_migration_waiting_for_a_target_becomes_overdue() -> None:
    stamps = [{"phase": "PreparingTarget", "time": ago(90_000)}]
    status = {"attempts": [ENDED], "phaseTransitionTimestamps": stamps}
    said = condition(written(plan(seen(status=status, lingers=40.0)))["conditions"], "Succeeded")
    assert said is not None
    assert said["reason"] == "Overdue"


@pytest.mark.parametrize("phase", ["Scheduling", "PreparingTarget", "TargetReady", "Running"])
def test_migration_without_attempt_number_fails_at_first_failure(phase: str) -> None:
    """Nor while Scheduling. An older virt-controller wrote no number, and its virt-handlers may be as old."""
    count = {"attempt": 1} if phase == "Scheduling" else {"attempt": None}
    assert written(plan(seen(phase, status=count)))["phase"] == "Failed"


PODS = st.none() | st.builds(a_target, phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]), deleting=st.booleans())
FAILURES = st.sampled_from([BROKE, ENDED, {**BROKE, "number": 2}, {**ENDED, "number": 2}, {**BROKE, "number": 3}])
OBSERVED = st.builds(
    lambda phase, deleting, attempt, failures, target, later: replace(
        seen(phase, deleting=deleting, status={"attempt": attempt, "attempts": failures}, target=target), now=NOW + timedelta(seconds=later)
    ),
    st.sampled_from(("Pending", "Scheduling", "PreparingTarget", "TargetReady", "Running")),
    st.booleans(),
    st.integers(1, 3),
    st.lists(FAILURES, max_size=3, unique_by=lambda each: each["number"]).map(lambda found: sorted(found, key=lambda each: each["number"])),
    PODS,
    st.integers(0, 900),
)


@given(OBSERVED)
def test_attempt_starts_only_after_the_last_is_known_to_be_over(observed: Observed) -> None:
    before = migration_attempts.number_of(observed.migration)
    for each in plan(observed):
        if not isinstance(each, WriteStatus):
            continue
        after = each.status["attempt"]
        assert after in (before, before + 1)
        assert after <= migration_attempts.MAX_ATTEMPTS
        phase, now = phases.phase_of(observed.migration), each.status["phase"]
        assert now == phase or now in phases.MIGRATION_TRANSITIONS[phase]
        assert not status_validation.validate_migration_status({"status": each.status}, observed.migration)
        if after > before:
            failure = next(one for one in each.status["attempts"] if one["number"] == before)
            assert failure["reason"] in migration_attempts.REPORTED or phases.phase_of(observed.migration) != "Running"
            assert observed.target is None or observed.target["status"]["phase"] in ("Succeeded", "Failed")
