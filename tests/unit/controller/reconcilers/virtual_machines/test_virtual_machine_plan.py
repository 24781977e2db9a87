from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta.objects import condition, is_deleting, name_of, uid_of
from apiserver.apis.virt.lifecycle import phases, power
from apiserver.apis.virt.places import forms, names
from apiserver.apis.virt.v1alpha1 import status_validation
from controller.reconcilers.actions import (
    Action,
    AddFinalizer,
    AddOwner,
    CreatePod,
    DeleteObject,
    DeletePod,
    Emit,
    RemoveFinalizer,
    Requeue,
    ResizePod,
    SetPodCondition,
    WriteStatus,
)
from controller.reconcilers.applying import PodRefused, status_patch
from controller.reconcilers.launcher_pods.launcher_pod import launcher_pod
from controller.reconcilers.launcher_pods.scheduling import Placement
from controller.reconcilers.nodes.node_reports import Unreachable
from controller.reconcilers.pods import liveness, pod_state
from controller.reconcilers.pods.absences import TARGET_MAY_RUN
from controller.reconcilers.pods.liveness import Absent, Evidence
from controller.reconcilers.pods.ownership import may_have_arrived
from controller.reconcilers.settings import Settings
from controller.reconcilers.trimming import trim_pod
from controller.reconcilers.virtual_machines import unreachable_nodes
from controller.reconcilers.virtual_machines.attempts import failed_nodes, is_handled
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.virtual_machine_plan import plan
from tests.clients import kstatus
from tests.unit.controller.reconcilers.builders import UID, a_migration, a_pod, a_vm, an_attempt
from tests.unit.controller.reconcilers.processors import MILAN, ROME, a_node

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
LOST = Unreachable(whole=frozenset({"node1"}))
OFF = Unreachable(whole=frozenset({"node1"}), off=frozenset({"node1"}))
MUTE = Unreachable(of_kubelet={"node1": 17.0})
TARGETS = frozenset({names.target_pod_name("testvm", "m")})


def seen(
    vm: dict[str, Any],
    *pods: dict[str, Any],
    claims: Mapping[str, Any] | None = None,
    unreachable: Unreachable | None = None,
    lingers: float = 0.0,
    absent_targets: tuple[Absent, ...] = (),
    **rest: Any,
) -> Observed:
    status = vm.get("status", {})
    own = Absent(status.get("podName", ""), status.get("podUID", ""), status.get("nodeName", ""), lingers)
    evidence = Evidence(unreachable or Unreachable(), (own, *absent_targets))
    kept = tuple(map(trim_pod, pods))
    return Observed(vm=vm, pods=kept, claims=claims or {}, settings=Settings("launcher"), evidence=evidence, **{"now": NOW, **rest})


def kinds(actions: tuple[Action, ...]) -> list[str]:
    return [type(each).__name__ for each in actions]


def deleted(actions: tuple[Action, ...]) -> list[DeletePod]:
    return [each for each in actions if isinstance(each, DeletePod)]


def written(actions: tuple[Action, ...]) -> dict[str, Any]:
    found = next(each.status for each in actions if isinstance(each, WriteStatus))
    assert not status_validation.validate_virtual_machine_status({"status": found}, {})
    return found


def test_a_new_machine_gets_its_pod_and_one_write() -> None:
    actions = plan(seen(a_vm()))
    assert kinds(actions) == ["CreatePod", "WriteStatus", "Emit"]
    status = written(actions)
    assert (status["phase"], status["attempt"], status["podName"]) == ("Scheduling", 1, names.launcher_pod_name("testvm", UID, 1))
    disks = condition(status["conditions"], "DisksReady")
    assert disks is not None
    assert disks["status"] == "True"


def test_memory_that_the_pod_requests_is_explained() -> None:
    def told(vm: dict[str, Any], refusal: str = "") -> str:
        return next(each.message for each in plan(seen(vm, refusal=refusal)) if isinstance(each, Emit))

    vm = a_vm(domain={"memory": {"guest": "128Mi"}, "devices": {"interfaces": []}})
    parts = re.fullmatch(r"created pod \S+ for attempt 1: (\d+)Mi of memory, 128Mi for the guest and (\d+)Mi for QEMU, .+", told(vm))
    assert parts is not None
    assert int(parts[1]) == 128 + int(parts[2])
    assert told(vm, "exceeded quota: requested: limits.memory=401Mi") == (
        f"exceeded quota: requested: limits.memory=401Mi; the pod requests {told(vm).partition(': ')[2]}"
    )
    assert told(vm, "no such runtime") == "no such runtime"
    huge = {"memory": {"guest": "128Mi", "hugepages": {"pageSize": "2Mi"}}, "resources": {"requests": {}}}
    assert ", 0Mi for the guest and" in told(a_vm(domain=huge))


def test_the_verbs_node_is_that_of_its_own_attempt_only() -> None:
    ended: dict[str, Any] = {"result": "Failed", "endTime": "2026-11-21T07:00:00Z"}
    request = {"action": "Start", "runStrategy": "RerunOnFailure", "attempt": 2, "nodeSelector": {"kubernetes.io/hostname": "b"}}
    for attempts, expected in (([an_attempt(**ended)], request["nodeSelector"]), ([an_attempt(**ended), an_attempt(2, **ended)], None)):
        vm = a_vm(phase="Failed", attempts=attempts)
        vm["status"]["request"] = request
        (pod,) = [each.pod for each in plan(seen(vm)) if isinstance(each, CreatePod)]
        assert pod["spec"].get("nodeSelector") == expected


def test_unrecorded_pod_is_created_again_for_comparison() -> None:
    actions = plan(seen(a_vm(), a_pod(1, phase="Pending", node="")))
    assert kinds(actions) == ["CreatePod", "WriteStatus", "Emit"]
    assert isinstance(actions[0], CreatePod)
    assert name_of(actions[0].pod) == name_of(a_pod(1))
    assert kinds(plan(seen(a_vm(), a_pod(1, phase="Pending", node=""), refusal="pod exists"))) == ["WriteStatus", "Emit"]


@pytest.mark.parametrize("state", ["second", "deleting", "second, deleting"])
def test_next_attempt_waits_until_only_its_own_pod_lives(state: str) -> None:
    """A pod under deletion may end before its guest."""
    made, stray = a_pod(1, phase="Pending", node="", deleting=state == "deleting"), a_pod(7, deleting=state == "second, deleting")
    pods = [made] if state == "deleting" else [made, stray]
    for each in (pods, pods[::-1]):
        for vm in (a_vm(), a_vm(phase="Pending")):
            actions = plan(seen(vm, *each))
            assert not {"CreatePod", "WriteStatus"} & set(kinds(actions))
            gone = {action.name for action in actions if isinstance(action, DeletePod)}
            assert gone == {name_of(pod) for pod in each if not is_deleting(pod)}


@pytest.mark.parametrize("phase", ["Scheduling", "Pending", ""])
def test_a_pod_that_is_being_deleted_is_not_handed_a_guest(phase: str) -> None:
    vm = a_vm(phase=phase or "Scheduling", attempts=[an_attempt()])
    if not phase:
        del vm["status"]["phase"]
    assert plan(seen(vm, a_pod(deleting=True))) == ()
    assert written(plan(seen(vm, a_pod())))["phase"] == "Scheduled"


def test_pod_under_deletion_is_not_deleted_for_a_late_start() -> None:
    vm = a_vm(phase="Scheduled", attempts=[an_attempt()])
    late = NOW + timedelta(hours=1)
    assert "DeletePod" in kinds(plan(seen(vm, a_pod(), now=late)))
    assert plan(seen(vm, a_pod(deleting=True), now=late)) == ()


def test_the_uid_of_a_pod_is_written_down_when_it_is_made() -> None:
    write = next(each for each in plan(seen(a_vm())) if isinstance(each, WriteStatus))
    assert write.uid_field == "podUID"


def test_a_pod_under_the_same_name_is_not_handed_the_guest() -> None:
    """A user replaced the pod with one of the same owner. The plan deletes it; the attempt ends when it is gone."""
    vm = a_vm(phase="Scheduling", attempts=[an_attempt()])
    other = a_pod()
    other["metadata"]["uid"] = "uid-of-another"
    assert plan(seen(vm, other)) == (DeletePod(name_of(other), "uid-of-another"),)
    assert written(plan(seen(vm)))["attempts"][0]["result"] == "Failed"


def test_stray_pods_do_not_stand_in_for_the_recorded_one() -> None:
    stray = a_pod(7)
    for phase in ("Scheduling", "Scheduled", "Running", "Unknown"):
        assert plan(seen(a_vm(phase=phase, attempts=[an_attempt()]), stray)) == (DeletePod(name_of(stray), uid_of(stray)),)
    assert kinds(plan(seen(a_vm(), stray))) == ["DeletePod"]


def test_no_guest_goes_into_a_pod_that_is_being_deleted() -> None:
    """It would be powered off early. The attempt ends with the pod, and the next one gets another."""
    going = a_pod(deleting=True)
    assert plan(seen(a_vm(phase="Scheduling", attempts=[an_attempt()]), going)) == ()
    late = NOW + timedelta(hours=1)
    assert plan(seen(a_vm(phase="Scheduled", attempts=[an_attempt()]), going, now=late)) == ()


def test_pod_without_labels_and_owner_is_still_watched() -> None:
    bare = a_pod()
    for key in ("labels", "annotations", "ownerReferences"):
        del bare["metadata"][key]
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    assert plan(seen(vm, bare)) == ()
    assert written(plan(seen(a_vm(phase="Scheduling", attempts=[an_attempt()]), bare)))["podUID"] == uid_of(bare)
    vm["spec"]["runStrategy"] = "Halted"
    assert deleted(plan(seen(vm, bare))) == [DeletePod(name_of(bare), uid_of(bare))]
    vm["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:59Z"
    assert kinds(plan(seen(vm, bare))) == ["DeletePod"]


@pytest.mark.parametrize("phase", ["Scheduled", "Running", "Stopping", "Unknown"])
def test_lingering_guest_pod_blocks_decisions_until_its_time(phase: str) -> None:
    vm, gone = a_vm(phase=phase, attempts=[an_attempt()]), a_vm(phase=phase, attempts=[an_attempt()], deleting=True)
    vm["status"]["nodeName"] = gone["status"]["nodeName"] = "node1"
    for each in (vm, gone):
        assert plan(seen(each, lingers=50.0)) == (Requeue(50.0),)
        assert plan(seen(each, lingers=0.0, unreachable=MUTE)) == (Requeue(17.0),)  # without its kubelet no container ends
        assert "Requeue" not in kinds(plan(seen(each, lingers=50.0, unreachable=OFF)))
        assert "Requeue" not in kinds(plan(seen(each, lingers=0.0)))
    assert kinds(plan(seen(a_vm(phase="Scheduling", attempts=[an_attempt()]), lingers=50.0)))[0] == "WriteStatus"


@pytest.mark.parametrize("lingers", [0.0, 50.0])
@pytest.mark.parametrize("phase", ["Running", "Unknown"])
def test_pod_deleted_before_its_node_fell_silent_may_run(phase: str, lingers: float) -> None:
    vm = a_vm(phase=phase, attempts=[an_attempt()])
    vm["status"]["nodeName"] = "node1"
    actions = plan(seen(vm, lingers=lingers, unreachable=LOST))
    assert kinds(actions) == ["WriteStatus", "Emit", "Requeue"]
    assert actions[-1] == Requeue(liveness.LOST_LOOK_SECONDS)
    vm["status"] = written(actions)
    ready = condition(vm["status"]["conditions"], "Ready") or {}
    assert (vm["status"]["phase"], ready["status"], ready["reason"]) == ("Unknown", "Unknown", "PodMayRun")
    assert "kubectl virt fence node1 --off" in ready["message"]
    assert plan(seen(vm, lingers=lingers, unreachable=LOST)) == (Requeue(liveness.LOST_LOOK_SECONDS),)


@pytest.mark.parametrize(("reason", "is_reported"), [("NodeUnreachable", True), ("PodMayRun", False), ("Running", False)])
def test_only_a_reported_loss_explains_a_deleted_pod(reason: str, *, is_reported: bool) -> None:
    vm = a_vm(phase="Unknown", attempts=[an_attempt()])
    vm["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": reason, "message": ""}]
    assert unreachable_nodes.is_reported(vm) is is_reported


def a_source_that_was_left() -> dict[str, Any]:
    source = a_pod(phase="Succeeded", exit_code=0)
    source["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "migrated: the guest continues in another pod"
    return source


ABSENT = Absent(names.target_pod_name("testvm", "m"), "uid-of-target", "node2", 50.0, migration="move")


@pytest.mark.parametrize("sources", [(), (a_source_that_was_left(),), (a_pod(phase="Failed", exit_code=1),)])
@pytest.mark.parametrize("phase", ["Running", "Stopping", "Unknown"])
@pytest.mark.parametrize("deleting", [False, True])
def test_lingering_target_pod_blocks_decisions_until_its_time(phase: str, sources: tuple[dict[str, Any], ...], *, deleting: bool) -> None:
    vm = a_vm(phase=phase, attempts=[an_attempt()], deleting=deleting)
    vm["status"]["nodeName"] = "node1"
    waits = seen(vm, *sources, absent_targets=(ABSENT,))
    actions = plan(waits)
    assert kinds(actions) == ["WriteStatus", "Emit", "Requeue"]
    assert actions[-1] == Requeue(50.0)
    ready = condition(written(actions)["conditions"], "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("Unknown", TARGET_MAY_RUN)
    assert f"{ABSENT.name} of migration move was deleted" in ready["message"]
    assert "kubectl virt fence" not in ready["message"], "its node reports"
    assert written(actions)["attempts"] == vm["status"]["attempts"]
    assert written(actions)["phase"] == phase
    cut_off = plan(seen(vm, *sources, absent_targets=(ABSENT,), unreachable=Unreachable(whole=frozenset({"node2"}))))
    assert "kubectl virt fence node2 --off" in (condition(written(cut_off)["conditions"], "Ready") or {})["message"]
    vm["status"] = written(actions)
    assert plan(seen(vm, *sources, absent_targets=(ABSENT,))) == (Requeue(50.0),)
    mute, off = Unreachable(of_kubelet={"node2": 17.0}), Unreachable(whole=frozenset({"node2"}), off=frozenset({"node2"}))
    over = dataclasses.replace(ABSENT, lingers=0.0)
    assert plan(seen(vm, *sources, absent_targets=(over,), unreachable=mute)) == (Requeue(17.0),)
    for each in (seen(vm, *sources, absent_targets=(ABSENT,), unreachable=off), seen(vm, *sources, absent_targets=(over,))):
        assert "Requeue" not in kinds(plan(each))
        assert "RemoveFinalizer" in kinds(plan(each)) if deleting else written(plan(each))["attempts"][0]["result"]


def test_next_attempt_waits_for_a_target_that_may_run() -> None:
    ended = [an_attempt(result="Stopped", endTime="2026-01-01T00:00:30Z")]
    vm = a_vm(phase="Stopped", attempts=ended, runStrategy="Always")
    assert "CreatePod" in kinds(plan(seen(vm, rested=3600.0)))
    assert kinds(plan(seen(vm, rested=3600.0, absent_targets=(ABSENT,)))) == ["WriteStatus", "Emit", "Requeue"]
    vm["spec"]["runStrategy"] = "Halted"
    assert "Requeue" not in kinds(plan(seen(vm, rested=3600.0, absent_targets=(ABSENT,))))
    said = {"type": "Ready", "status": "Unknown", "reason": TARGET_MAY_RUN, "message": ""}
    vm["status"]["conditions"] = [said]
    assert condition(written(plan(seen(vm, rested=3600.0)))["conditions"], "Ready") is None


def test_the_source_of_a_target_that_is_gone_is_left_alone() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    vm["status"]["nodeName"] = "node1"
    assert plan(seen(vm, a_pod(), absent_targets=(ABSENT,))) == plan(seen(vm, a_pod()))
    vm["spec"]["runStrategy"] = "Halted"
    assert deleted(plan(seen(vm, a_pod(), absent_targets=(ABSENT,)))) == deleted(plan(seen(vm, a_pod()))) != []


def test_cause_of_an_end_is_reported_after_the_target_wait() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    said = {"type": "Ready", "status": "False", "reason": "LivenessProbeFailed", "message": "the guest did not answer"}
    vm["status"] |= {"nodeName": "node1", "conditions": [said]}
    assert plan(seen(vm, a_pod(phase="Succeeded", exit_code=0), absent_targets=(ABSENT,))) == (Requeue(50.0),)


@pytest.mark.parametrize(
    ("phase", "by_pods", "by_words"),
    [
        ("", False, True),
        ("Pending", False, True),
        ("Scheduling", False, True),
        ("PreparingTarget", True, True),
        ("TargetReady", True, True),
        ("Running", True, True),
        *((each, False, False) for each in sorted(phases.MIGRATION_FINAL)),
    ],
)
def test_guest_may_be_in_the_target_of_an_open_migration(phase: str, *, by_pods: bool, by_words: bool) -> None:
    vm, source = a_vm(phase="Running", attempts=[an_attempt()]), a_source_that_was_left()
    migration = a_migration(phase=phase or "Pending", sourcePod=name_of(source), sourcePodUID=uid_of(source))
    migration["status"]["phase"] = phase
    assert may_have_arrived(migration, vm, (a_pod(),)) is by_pods
    assert may_have_arrived(migration, vm, (source,)) is by_words


@pytest.mark.parametrize("strategy", ["Manual", "Halted"])
def test_unwanted_machine_is_stopped(strategy: str) -> None:
    actions = plan(seen(a_vm(runStrategy=strategy)))
    assert kinds(actions) == ["WriteStatus"]
    assert written(actions)["phase"] == "Stopped"


def test_a_running_pod_is_handed_to_its_node_with_one_write() -> None:
    actions = plan(seen(a_vm(phase="Scheduling", attempts=[an_attempt()]), a_pod()))
    status = written(actions)
    assert (status["phase"], status["nodeName"], status["podUID"]) == ("Scheduled", "node1", uid_of(a_pod()))
    assert kinds(actions).count("WriteStatus") == 1


def test_obstacle_of_a_pod_is_reported_and_nothing_else_happens() -> None:
    pod = a_pod(phase="Pending", node="")
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes: memory"}]
    actions = plan(seen(a_vm(phase="Scheduling", attempts=[an_attempt()]), pod, now=NOW + timedelta(days=1)))
    ready = condition(written(actions)["conditions"], "Ready")
    assert ready is not None
    assert (ready["reason"], "0/2 nodes: memory" in ready["message"]) == ("Unschedulable", True)
    assert kinds(actions) == ["WriteStatus", "Emit"]


@pytest.mark.parametrize(
    ("selector", "message", "prefix"),
    [
        ({"cpu": "faast"}, "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. preemption: none", True),
        (
            {"cpu": "faast"},
            "0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) didn't match Pod's node affinity/selector.",
            True,
        ),
        ({"cpu": "faast"}, "0/2 nodes are available: 1 Insufficient memory, 1 node(s) didn't match Pod's node affinity/selector.", False),
        ({"cpu": "faast"}, "0/2 nodes are available: 2 node(s) had untolerated taint(s).", False),
        ({}, "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", False),
    ],
)
def test_node_selector_without_a_node_is_named(selector: dict[str, str], message: str, *, prefix: bool) -> None:
    vm, pod = a_vm(phase="Scheduling", attempts=[an_attempt()], nodeSelector=selector), a_pod(phase="Pending", node="")
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    ready = condition(written(plan(seen(vm, pod)))["conditions"], "Ready")
    assert ready is not None
    assert ready["message"] == f"{'spec.nodeSelector cpu=faast: ' if prefix else ''}pod {name_of(pod)}: {message}"


@pytest.mark.parametrize(("attempt", "is_named"), [(1, True), (0, False)])
def test_chosen_node_of_a_start_that_is_not_there_is_named(attempt: int, *, is_named: bool) -> None:
    vm, pod = a_vm(phase="Scheduling", attempts=[an_attempt()], nodeSelector={"cpu": "fast"}), a_pod(phase="Pending", node="")
    request = {"action": "Start", "attempt": attempt, "runStrategy": vm["spec"]["runStrategy"], "generation": 1}
    vm["status"]["request"] = {**request, "nodeSelector": {"kubernetes.io/hostname": "node9"}}
    message = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    ready = condition(written(plan(seen(vm, pod)))["conditions"], "Ready")
    assert ready is not None
    start = ", the start's --node (nodeSelector of the verb) kubernetes.io/hostname=node9" if is_named else ""
    assert ready["message"] == f"spec.nodeSelector cpu=fast{start}: pod {name_of(pod)}: {message}"


def test_unschedulable_pod_reports_its_cpu_demands() -> None:
    vm, pod = a_vm(phase="Scheduling", attempts=[an_attempt()]), a_pod(phase="Pending", node="")
    vm["spec"]["domain"]["cpu"] = {"model": "Skylake-Client"}
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}]

    def told() -> str:
        ready = condition(written(plan(seen(vm, pod)))["conditions"], "Ready")
        return ready["message"] if ready is not None else ""

    assert told() == f"pod {name_of(pod)}: 0/2 nodes"
    pod["spec"]["containers"][0]["resources"]["limits"][names.KVM_RESOURCE] = "1"
    label = "cpu-model.node.kubevirt.io/Skylake-Client"
    assert told() == f"pod {name_of(pod)}: 0/2 nodes; spec.domain.cpu.model: Skylake-Client needs a node with the label {label}"
    pod["status"]["conditions"][0]["status"] = "True"
    pod["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ErrImagePull", "message": "denied"}}
    assert told() == f"pod {name_of(pod)}: denied"


def test_start_timeout_deletes_the_pod_and_fails_the_attempt() -> None:
    vm, pod = a_vm(phase="Scheduled", attempts=[an_attempt(nodeName="node1")]), a_pod()
    late = NOW + timedelta(seconds=180)
    actions = plan(seen(vm, pod, now=late))
    assert DeletePod(name_of(pod), uid_of(pod)) in actions
    vm["status"] = written(actions)
    ended = written(plan(seen(vm, now=late)))
    assert ended["phase"] == "Failed"
    assert "did not run within 180 s on node node1" in ended["attempts"][0]["message"]


@pytest.mark.parametrize("reason", ["ContainerCreating", "ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"])
def test_waiting_before_the_container_runs_ends_no_attempt(reason: str) -> None:
    vm, pod = a_vm(phase="Scheduling", attempts=[an_attempt()]), a_pod(phase="Pending")
    pod["status"]["containerStatuses"][0]["state"]["waiting"] = {"reason": reason}
    late = NOW + timedelta(hours=1)
    actions = plan(seen(vm, pod, now=late))
    assert kinds(actions) == ["WriteStatus", "Emit"]
    ready = condition(written(actions)["conditions"], "Ready")
    assert ready is not None
    assert ready["reason"] == reason
    vm["status"] = written(actions)
    assert plan(seen(vm, pod, now=late)) == ()
    handed = plan(seen(vm, a_pod(), now=late))
    assert (written(handed)["phase"], handed[-1]) == ("Scheduled", Requeue(180))
    vm["status"] = written(handed)
    assert plan(seen(vm, a_pod(), now=late + timedelta(seconds=30))) == (Requeue(150.0),)


def test_slow_pod_preparation_is_reported_after_a_minute() -> None:
    vm, pod = a_vm(phase="Scheduling", attempts=[an_attempt()]), a_pod(phase="Pending")
    assert plan(seen(vm, pod, now=NOW - timedelta(seconds=20))) == (Requeue(20.0),)
    assert plan(seen(vm, pod, now=NOW - timedelta(days=1))) == (Requeue(60.0),)
    ready = condition(written(plan(seen(vm, pod)))["conditions"], "Ready")
    assert ready is not None
    assert f"kubectl describe pod {name_of(pod)}" in ready["message"]


NEVER_RAN = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None, "message": "not located"}}
CRASHED = {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(("state", "ran"), [(NEVER_RAN, False), (CRASHED, True), (None, False)], ids=["never", "crashed", "rejected"])
def test_only_a_container_that_ran_makes_a_failed_start(state: dict[str, Any] | None, ran: bool) -> None:
    pod = a_pod(phase="Failed")
    pod["status"]["containerStatuses"] = [{"name": names.CONTAINER, "state": state}] if state else []
    status = written(plan(seen(a_vm(phase="Scheduling", attempts=[an_attempt()], rerun={"limit": 0}), pod)))
    assert (status["phase"], status["attempts"][0].get("nodeName")) == ("Failed", "node1" if ran else None)
    assert power.decide({"spec": {"rerun": {"limit": 0}}, "status": status}).on is not ran


def waiting_for_an_image(status: str = "False", since: str = "2026-01-01T00:00:10Z", reason: str = "DiskImageNotFound") -> dict[str, Any]:
    vm = a_vm(phase="Scheduled", attempts=[an_attempt()])
    reason = reason if status == "False" else "Found"
    vm["status"]["conditions"] = [{"type": "DisksReady", "status": status, "reason": reason, "message": "", "lastTransitionTime": since}]
    return vm


def test_image_wait_is_unlimited_and_the_start_limit_follows_it() -> None:
    late = NOW + timedelta(days=1)
    assert plan(seen(waiting_for_an_image(), a_pod(), now=late)) == ()
    assert plan(seen(waiting_for_an_image(reason="ClaimTooSmall"), a_pod(), now=late)) == ()

    found = waiting_for_an_image("True", since="2026-01-02T00:00:50Z")
    assert plan(seen(found, a_pod(), now=late)) == (Requeue(170.0),)
    assert "DeletePod" in kinds(plan(seen(found, a_pod(), now=late + timedelta(seconds=170))))


@pytest.mark.parametrize("since", ["2026-01-03T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_future_end_of_an_image_wait_does_not_extend_the_start(since: str) -> None:
    """The latest possible time would make the plan fail."""
    late = NOW + timedelta(days=1)
    assert plan(seen(waiting_for_an_image("True", since=since), a_pod(), now=late)) == (Requeue(180.0),)


def test_machine_waiting_for_an_image_can_be_stopped_and_deleted() -> None:
    stopped, gone, pod = waiting_for_an_image(), waiting_for_an_image(), a_pod()
    stopped["spec"]["runStrategy"] = "Halted"
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:59Z"
    for vm in (stopped, gone):
        assert deleted(plan(seen(vm, pod))) == [DeletePod(name_of(pod), uid_of(pod))]

    status = written(plan(seen(stopped)))
    assert condition(status["conditions"], "DisksReady") is None


def test_a_machine_that_ended_is_on_no_node() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt(nodeName="node1", runningTime="2026-01-01T00:00:10Z")])
    here = {"nodeName": "node1", "podIP": "10.0.0.1", "domain": {"state": "running"}, "interfaces": [], "graphics": []}
    vm["status"] |= here
    status = written(plan(seen(vm, a_pod(phase="Failed", exit_code=1))))
    assert not set(here) & set(status)
    assert (status["podName"], status["podUID"]) == (vm["status"]["podName"], vm["status"]["podUID"])
    assert status["attempts"][0]["nodeName"] == "node1"


@pytest.mark.parametrize(("rerun", "left"), [({}, 120.0), ({"startTimeoutSeconds": 100}, 40.0)])
def test_in_time_the_deadline_is_waited_for(rerun: dict[str, Any], left: float) -> None:
    actions = plan(seen(a_vm(phase="Scheduled", attempts=[an_attempt()], rerun=rerun), a_pod()))
    assert actions == (Requeue(left),)


@pytest.mark.parametrize("kind", ["DisksReady", "NetworkReady"])
@pytest.mark.parametrize("reason", ["PluginFailed", "PluginTimedOut", "PluginNotFound"])
def test_a_plugin_that_fails_takes_no_time_of_the_start(kind: str, reason: str) -> None:
    vm = a_vm(phase="Scheduled", attempts=[an_attempt()], rerun={"startTimeoutSeconds": 1})
    told = {"type": kind, "status": "False", "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:01:00Z"}
    vm["status"]["conditions"] = [told]
    assert plan(seen(vm, a_pod())) == ()
    vm["status"]["conditions"] = [{**told, "status": "True", "reason": "Ready"}]
    assert plan(seen(vm, a_pod())) == (Requeue(1.0),)
    vm["status"]["conditions"] = [{**told, "reason": "NetworkNotReady"}]
    assert plan(seen(vm, a_pod())) not in ((), (Requeue(1.0),))


@pytest.mark.parametrize(
    ("pod", "result"),
    [(a_pod(phase="Succeeded", exit_code=0), "Succeeded"), (a_pod(phase="Failed", exit_code=1), "Failed"), (None, "Failed")],
    ids=["powered off", "crashed", "vanished"],
)
def test_end_missed_by_virt_handler_is_read_from_the_pod(pod: dict[str, Any] | None, result: str) -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt(runningTime="2026-01-01T00:00:10Z")])
    status = written(plan(seen(vm, *([pod] if pod else []))))
    assert (status["phase"], status["attempts"][0]["result"]) == (result, result)


def test_guest_failing_liveness_has_failed_however_its_pod_ended() -> None:
    vm = a_vm(phase="Stopping", attempts=[an_attempt(runningTime="2026-01-01T00:00:10Z")])
    told = {"type": "Ready", "status": "False", "reason": "LivenessProbeFailed", "message": "the liveness probe failed: no answer"}
    vm["status"]["conditions"] = [told]
    status = written(plan(seen(vm, a_pod(phase="Succeeded", exit_code=0))))
    assert (status["phase"], status["attempts"][0]["result"]) == ("Failed", "Failed")
    assert status["attempts"][0]["message"] == told["message"]


def test_guest_starts_again_after_its_pod_was_deleted() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt(runningTime="2026-01-01T00:00:10Z")])
    vm["status"] = written(plan(seen(vm, a_pod(phase="Succeeded", exit_code=0, deleting=True))))
    assert vm["status"]["phase"] == "Stopped"
    assert "CreatePod" in kinds(plan(seen(vm)))


@pytest.mark.parametrize(
    ("earlier", "avoided"),
    [
        ([], ("node1",)),
        ([{"result": "Failed", "nodeName": "node2"}], ("node1", "node2")),
        ([{"result": "Failed", "nodeName": "node1"}], ("node1",)),
        ([{"result": "Failed"}], ("node1",)),
        ([{"result": "Failed", "nodeName": "node2", "runningTime": "2026-01-01T00:00:10Z"}], ("node1",)),
        ([{"result": "Stopped", "nodeName": "node2"}], ("node1",)),
        ([{"result": "Failed", "nodeName": "node3"}, {"result": "Succeeded", "nodeName": "node2"}], ("node1",)),
    ],
)
def test_start_avoids_nodes_of_failed_starts_since_the_last_run(earlier: list[Mapping[str, str]], avoided: tuple[str, ...]) -> None:
    starts = [*earlier, {"result": "Failed", "nodeName": "node1"}]
    numbered = [an_attempt(number, **each) for number, each in enumerate(starts, start=1)]
    assert failed_nodes(a_vm(phase="Failed", attempts=numbered)) == avoided


def test_launcher_ending_without_a_guest_is_a_failed_start() -> None:
    pod = a_pod(phase="Succeeded", exit_code=0)
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "no guest was started"
    assert written(plan(seen(a_vm(phase="Scheduled", attempts=[an_attempt()]), pod)))["phase"] == "Failed"


def test_moved_guest_that_ended_has_its_targets_result() -> None:
    source, target = a_pod(phase="Succeeded", exit_code=0), a_pod(phase="Succeeded", exit_code=0, migration="m", node="node2")
    source["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "migrated: the guest continues in another pod"
    vm = a_vm(phase="Running", attempts=[an_attempt(runningTime="2026-01-01T00:00:10Z")])
    assert written(plan(seen(vm, source, target, targets=TARGETS)))["phase"] == "Succeeded"


def test_end_of_a_moved_guest_is_read_from_its_target_only() -> None:
    own, stray = a_pod(phase="Succeeded", exit_code=0), a_pod(7, phase="Succeeded", exit_code=0)
    own["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "migrated: the guest left"
    ended = written(plan(seen(a_vm(phase="Running", attempts=[an_attempt()]), own, stray)))["attempts"][0]
    assert (ended["result"], ended["message"]) == ("Failed", "migrated: the guest left")


def test_unreachable_kubelet_contradicts_no_end_of_a_handler() -> None:
    unreachable = Unreachable(of_kubelet={"node1": 30.0})
    actions = plan(seen(a_vm(phase="Running", attempts=[an_attempt()], deleting=True), a_pod(), unreachable=unreachable))
    assert kinds(actions) == ["DeletePod", "Requeue"]


def test_launchers_end_message_is_one_bounded_line() -> None:
    pod = a_pod(phase="Failed", exit_code=1)
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "crashed: QEMU\n\x1b[2J" + "x" * 4000
    message = pod_state.end_of(pod).message
    assert message.startswith("crashed: QEMU | [2Jxxx")
    assert len(message) == pod_state.MAX_MESSAGE


@pytest.mark.parametrize(("said", "words"), [("", "virt-launcher ended: OOMKilled"), ("crashed: QEMU ended", "crashed: QEMU ended")])
def test_lack_of_memory_is_the_cause_of_an_end(said: str, words: str) -> None:
    pod = a_pod(phase="Failed", exit_code=137)
    pod["status"]["containerStatuses"][0]["state"]["terminated"] |= {"reason": "OOMKilled", "message": said}
    cause = "the pod reached its memory limit (spec.domain.resources.limits.memory), or its node lacked memory"
    assert pod_state.end_of(pod).message == f"{cause}; {words} (exit code 137)"
    moved = {"exitCode": 0, "reason": "OOMKilled", "message": "migrated: the guest left"}
    pod["status"]["containerStatuses"][0]["state"]["terminated"] = moved
    assert pod_state.has_migrated(pod)


def test_registry_message_is_one_bounded_printable_line() -> None:
    pod = a_pod(phase="Pending")
    said = "\x1b[2Jdenied\nby " + "x" * 5000
    pod["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ErrImagePull", "message": said}}
    found = pod_state.obstacle(pod)
    assert found is not None
    assert found[1].startswith("[2Jdenied | by xxx")
    assert len(found[1]) == pod_state.MAX_MESSAGE


def test_foreign_reasons_are_words_and_foreign_messages_lines() -> None:
    """A VM with an unwritable status would be stuck."""
    pod = a_pod(phase="Pending", node="")
    for reason, expected in (
        ("Not \x1b[2Jenough " + "x" * 999, "Not2Jenough"),
        ("", "Unschedulable"),
        ("42", "Unschedulable"),
        (None, "Unschedulable"),
    ):
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/3\nnodes \x1b[31m" + "x" * 9999}
        pod["status"]["conditions"] = [condition]
        found = pod_state.obstacle(pod)
        assert found is not None
        assert found[0].startswith(expected)
        assert not forms.reason_errors(found[0])
        assert not forms.message_errors(found[1])
    assert not forms.message_errors(str(PodRefused('admission webhook "w" denied the request: \x1b[2J\n' + "ä" * 99_999)))


def test_failed_pod_without_an_ended_container_is_not_over() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    pod = a_pod(deleting=True)
    pod["status"]["phase"] = "Failed"
    assert plan(seen(vm, pod)) == ()


def test_a_restart_ends_the_old_pod_before_the_new_one_is_made() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    vm["status"]["request"] = {"action": "Restart", "runStrategy": "RerunOnFailure", "attempt": 2}
    pod = a_pod()
    actions = plan(seen(vm, pod))
    assert (kinds(actions), deleted(actions)) == (["WriteStatus", "DeletePod"], [DeletePod(name_of(pod), uid_of(pod))])
    vm["status"] = written(actions)
    assert plan(seen(vm, a_pod(deleting=True))) == ()
    ended = written(plan(seen(vm)))
    assert ended["attempts"][0]["result"] == "Stopped"
    assert "CreatePod" in kinds(plan(seen({**vm, "status": ended})))


def test_the_target_of_a_migration_is_left_alone() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    assert plan(seen(vm, a_pod(), a_pod(migration="m", node="node2"), targets=TARGETS)) == ()


def test_ended_source_pod_does_not_end_the_attempt_with_a_target() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    target = a_pod(migration="m", node="node2")
    assert plan(seen(vm, a_pod(phase="Succeeded", exit_code=0), target, targets=TARGETS)) == ()
    assert kinds(plan(seen(vm, a_pod(phase="Succeeded", exit_code=0), target))) == ["DeletePod"]


def test_stopping_in_the_middle_of_a_migration_stops_both_sides() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    vm["status"]["request"] = {"action": "Stop", "runStrategy": "RerunOnFailure"}
    assert kinds(plan(seen(vm, a_pod(), a_pod(migration="m", node="node2")))) == ["WriteStatus", "DeletePod", "DeletePod"]


@pytest.mark.parametrize("back", ["Always", "RerunOnFailure", "Once", "Manual"])
@pytest.mark.parametrize(
    ("phase", "pod_phase"), [("Scheduling", "Pending"), ("Scheduling", "Running"), ("Scheduled", "Running"), ("Running", "Running")]
)
def test_revoked_stop_is_no_failure_and_hands_nothing_over(phase: str, pod_phase: str, back: str) -> None:
    vm, pod = a_vm(phase=phase, attempts=[an_attempt()], runStrategy="Halted"), a_pod(phase=pod_phase)
    actions = plan(seen(vm, pod))
    assert deleted(actions) == [DeletePod(name_of(pod), uid_of(pod), grace_seconds=1 if phase == "Scheduling" else None)]
    assert kinds(actions)[0] == "WriteStatus", "nothing is deleted before it is remembered, at the revision that was looked at"
    vm["status"] = written(actions)
    vm["spec"]["runStrategy"] = back
    assert deleted(plan(seen(vm, pod))) == deleted(actions), "the deletion may have failed"
    assert plan(seen(vm, a_pod(phase=pod_phase, deleting=True))) == ()
    vm["status"] = written(plan(seen(vm, a_pod(phase="Failed", exit_code=137, deleting=True))))
    assert (vm["status"]["phase"], vm["status"]["attempts"][0]["result"]) == ("Stopped", "Stopped")
    assert ("CreatePod" in kinds(plan(seen(vm)))) is (back in ("Always", "RerunOnFailure"))


def test_the_verbs_grace_period_is_the_pods_also_while_it_ends() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    vm["status"]["request"] = {"action": "Stop", "runStrategy": "RerunOnFailure", "gracePeriodSeconds": 5}
    assert [each.grace_seconds for each in deleted(plan(seen(vm, a_pod())))] == [20]
    vm["status"] = written(plan(seen(vm, a_pod())))
    ending = a_pod(deleting=True)
    for grace, expected in ((45, [20]), (20, []), (3, [])):
        ending["metadata"]["deletionGracePeriodSeconds"] = grace
        assert [each.grace_seconds for each in deleted(plan(seen(vm, ending)))] == expected
    del vm["status"]["request"]["gracePeriodSeconds"]
    ending["metadata"]["deletionGracePeriodSeconds"] = 45
    assert deleted(plan(seen(vm, ending))) == []


def test_spec_edit_before_there_is_a_guest_replaces_the_pod() -> None:
    vm, pod = a_vm(phase="Scheduling", attempts=[an_attempt(generation=1)]), a_pod(phase="Pending", node="")
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes: selector"}]
    assert deleted(plan(seen(vm, pod))) == []
    vm["metadata"]["generation"] = 2
    actions = plan(seen(vm, pod))
    assert (kinds(actions), deleted(actions)[0].grace_seconds) == (["WriteStatus", "DeletePod"], 1)
    vm["status"] = written(actions)
    vm["status"] = written(plan(seen(vm)))
    assert vm["status"]["attempts"][0]["message"] == "the spec was edited before the guest was started"
    again = plan(seen(vm))
    assert "CreatePod" in kinds(again)
    vm["status"] = written(again)
    assert [each.get("generation") for each in vm["status"]["attempts"]] == [1, 2]
    vm["status"]["podUID"] = uid_of(a_pod(2))
    assert deleted(plan(seen(vm, a_pod(2, phase="Pending", node="")))) == []


KEPT_EDITS: list[dict[str, Any]] = [
    {"runStrategy": "Always"},
    {"rerun": {"limit": 3}},
    {"evictionStrategy": "None"},
    {"terminationGracePeriodSeconds": 5},
    {"readinessProbe": {"tcpSocket": {"port": 22}}},
    {"livenessProbe": {"guestAgentPing": {}}},
]
OTHER_EDITS: list[dict[str, Any]] = [
    {"terminationGracePeriodSeconds": 31},
    {"nodeSelector": {"disk": "ssd"}},
    {"priorityClassName": "high"},
    {"accessCredentials": []},
    {"domain": {"memory": {"guest": "256Mi"}, "devices": {}}},
    {"ofALaterRelease": True},
]


@pytest.mark.parametrize(("edit", "stays"), [*((each, True) for each in KEPT_EDITS), *((each, False) for each in OTHER_EDITS)], ids=str)
def test_pod_without_guest_stays_if_an_edit_does_not_change_it(edit: dict[str, Any], *, stays: bool) -> None:
    vm = a_vm(phase="Scheduling", attempts=[an_attempt(generation=1)])
    made = launcher_pod(vm, 1, {}, Settings("launcher"), Placement())
    waiting = a_pod(phase="Pending", node="")
    pod = trim_pod({**waiting, "metadata": {**made["metadata"], "uid": uid_of(waiting)}, "spec": {**made["spec"], "nodeName": ""}})
    edited = {**vm, "metadata": {**vm["metadata"], "generation": 2}, "spec": {**vm["spec"], **edit}}
    assert (deleted(plan(seen(edited, pod))) == []) is stays
    is_same = launcher_pod(edited, 1, {}, Settings("launcher"), Placement())["spec"] == made["spec"]
    assert is_same or not stays or set(edit) == {"terminationGracePeriodSeconds"}, "what is kept is as it would be made"


@pytest.mark.parametrize("phase", ["Scheduled", "Running", "Stopping", "Unknown"])
def test_an_edit_ends_no_attempt_that_may_have_a_guest(phase: str) -> None:
    vm = a_vm(phase=phase, attempts=[an_attempt(generation=1)])
    vm["metadata"]["generation"] = 2
    assert deleted(plan(seen(vm, a_pod()))) == []


def test_a_mended_machine_avoids_no_node_for_what_was_before() -> None:
    vm = a_vm(phase="Failed", attempts=[an_attempt(result="Failed", nodeName="node1", generation=1)])
    assert failed_nodes(vm) == ("node1",)
    vm["metadata"]["generation"] = 2
    assert failed_nodes(vm) == ()


def disrupted(pod: dict[str, Any], reason: str = "EvictionByEvictionAPI", message: str = "Eviction API: evicting") -> dict[str, Any]:
    conditions = [
        *pod["status"].get("conditions", []),
        {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message},
    ]
    return {**pod, "status": {**pod["status"], "conditions": conditions}}


@pytest.mark.parametrize("phase", ["Scheduling", "Scheduled", "Running", "Stopping", "Stopped"])
def test_a_drain_says_that_it_was_the_reason(phase: str) -> None:
    """In an Event, a condition and the attempt. Stopped: virt-handler wrote the end before the pod was gone."""
    is_over: dict[str, Any] = {"result": "Stopped", "endTime": "2026-01-01T00:00:59Z"} if phase == "Stopped" else {}
    vm, pod = a_vm(phase=phase, attempts=[an_attempt(**is_over)]), disrupted(a_pod(deleting=True))
    actions = plan(seen(vm, pod))
    assert (kinds(actions), actions[1]) == (
        ["WriteStatus", "Emit"],
        Emit(
            "Warning", "EvictionByEvictionAPI", f"pod {name_of(pod)} on node node1 was evicted, as by kubectl drain: Eviction API: evicting"
        ),
    )
    vm["status"] = written(actions)
    found = condition(vm["status"]["conditions"], "DisruptionTarget")
    assert found is not None
    assert (found["status"], found["reason"]) == ("True", "EvictionByEvictionAPI")
    assert "Emit" not in kinds(plan(seen(vm, pod))), "it is said once"
    if phase != "Stopped":
        vm["status"] = written(plan(seen(vm, disrupted(a_pod(phase="Failed", exit_code=137, deleting=True)))))
        assert "was evicted, as by kubectl drain" in vm["status"]["attempts"][0]["message"]
    again = plan(seen(vm))
    assert "CreatePod" in kinds(again)
    assert condition(written(again)["conditions"], "DisruptionTarget") is None


def test_disruption_message_is_bounded_and_cleared_after_a_move() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    status = written(plan(seen(vm, disrupted(a_pod(), reason="\x1b[2J", message="a\n" + "x" * 9999))))
    found = condition(status["conditions"], "DisruptionTarget")
    assert found is not None
    assert not forms.reason_errors(found["reason"])
    assert not forms.message_errors(found["message"])
    vm["status"] = status
    assert condition(written(plan(seen(vm, a_pod())))["conditions"], "DisruptionTarget") is None


def test_deleted_machine_waits_for_no_guest_never_started() -> None:
    machines = [a_vm(phase=phase, attempts=[an_attempt()], deleting=True) for phase in ("Scheduling", "Scheduled", "Running")]
    assert [deleted(plan(seen(vm, a_pod())))[0].grace_seconds for vm in machines] == [1, None, None]


def test_only_a_pod_of_this_start_is_known_to_have_no_guest() -> None:
    vm = a_vm(phase="Scheduling", attempts=[an_attempt()], runStrategy="Halted")
    assert [each.grace_seconds for each in deleted(plan(seen(vm, a_pod(), a_pod(7))))] == [1, None]
    fresh = a_vm(runStrategy="Halted")  # its pod was created, and a stop came before the plan recorded it
    assert [each.grace_seconds for each in deleted(plan(seen(fresh, a_pod(), a_pod(7))))] == [1, None]


def test_a_lost_node_is_said_and_waited_for() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    actions = plan(seen(vm, a_pod(deleting=True), unreachable=LOST))
    assert written(actions)["phase"] == "Unknown"
    ready = condition(written(actions)["conditions"], "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeUnreachable")
    assert "kubectl virt fence node1 --off" in ready["message"]
    vm["status"] = written(actions)
    assert plan(seen(vm, a_pod(deleting=True), unreachable=LOST)) == ()


@pytest.mark.parametrize("phase", ["Scheduled", "Running", "Stopping", "Unknown"])
def test_unreachable_kubelet_does_not_contradict_a_handler(phase: str) -> None:
    vm = a_vm(phase=phase, attempts=[an_attempt()])
    pod = a_pod(bound_at="2026-01-01T00:01:00Z")
    actions = plan(seen(vm, pod, unreachable=MUTE))
    assert {type(each) for each in actions} == {Requeue}
    assert Requeue(17.0) in actions


def test_unreachable_other_migration_side_does_not_count() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    target = a_pod(migration="m", node="node2", deleting=True)
    assert plan(seen(vm, a_pod(), target, unreachable=Unreachable(frozenset({"node2"})))) == ()
    stopped = copy.deepcopy(vm)
    stopped["status"]["request"] = {"action": "Stop", "runStrategy": "RerunOnFailure"}
    assert kinds(plan(seen(stopped, a_pod(), target, unreachable=Unreachable(frozenset({"node2"}))))) == ["WriteStatus", "DeletePod"]
    assert written(plan(seen(vm, a_pod(), target, unreachable=Unreachable(frozenset({"node1"})))))["phase"] == "Unknown"


def test_pod_stuck_on_an_unreachable_node_is_reported_once() -> None:
    vm = a_vm(phase="Stopped", attempts=[an_attempt(result="Stopped", endTime="2026-01-01T00:00:00Z")], runStrategy="Manual")
    actions = plan(seen(vm, a_pod(deleting=True), unreachable=MUTE))
    vm["status"] = written(actions)
    ready = condition(vm["status"]["conditions"], "Ready")
    assert ready is not None
    assert (vm["status"]["phase"], ready["status"], ready["reason"]) == ("Stopped", "False", "KubeletUnreachable")
    assert "do not force-delete the pod" in ready["message"]
    assert plan(seen(vm, a_pod(deleting=True), unreachable=MUTE)) == (Requeue(17.0),)
    assert condition(written(plan(seen(vm)))["conditions"], "Ready") is None


@pytest.mark.parametrize("silent", ["whole", "of_kubelet"])
def test_pod_waiting_on_an_unreachable_node_is_reported_once(silent: str) -> None:
    unreachable = LOST if silent == "whole" else MUTE
    vm = a_vm(phase="Scheduling", attempts=[an_attempt()])
    pod = a_pod(phase="Pending")
    pod["status"]["containerStatuses"][0]["state"]["waiting"] = {"reason": "ImagePullBackOff", "message": "no such image"}
    vm["status"] = written(plan(seen(vm, pod, unreachable=unreachable)))
    again = plan(seen(vm, pod, unreachable=unreachable, now=NOW + timedelta(hours=1)))
    assert [each for each in again if not isinstance(each, Requeue)] == []


@pytest.mark.parametrize(
    ("phase", "pinned", "missing", "reason"),
    [
        ("Scheduling", True, True, "NodeNotFound"),
        ("Scheduling", False, True, "NodeNotFound"),
        ("Scheduling", True, False, "NodeUnreachable"),
        ("Running", True, True, "NodeUnreachable"),  # it existed, and the guest may run
    ],
)
def test_a_node_that_there_is_not_is_not_called_silent(phase: str, pinned: bool, missing: bool, reason: str) -> None:
    vm = a_vm(phase=phase, attempts=[an_attempt()], nodeName="ghost" if pinned else "")
    pod = a_pod(phase="Pending" if phase == "Scheduling" else "Running", node="ghost")
    if phase == "Scheduling":
        del pod["status"]["containerStatuses"]
    ghost = frozenset({"ghost"})
    unreachable = Unreachable(whole=ghost, missing=ghost if missing else frozenset())
    actions = plan(seen(vm, pod, unreachable=unreachable))
    ready = condition(written(actions)["conditions"], "Ready")
    assert ready is not None
    assert ready["reason"] == reason
    assert ('node "ghost" not found' in ready["message"]) == (reason == "NodeNotFound")
    assert ("spec.nodeName" in ready["message"]) == (pinned and reason == "NodeNotFound")
    vm["status"] = written(actions)
    assert plan(seen(vm, pod, unreachable=unreachable)) == ()


def test_no_pod_is_made_for_a_node_that_there_is_not() -> None:
    """Kubernetes removes each pod after 40 s: six failed attempts in four minutes."""
    ghost = Unreachable(whole=frozenset({"ghost"}), missing=frozenset({"ghost"}))
    vm = a_vm(nodeName="ghost")
    actions = plan(seen(vm, unreachable=ghost))
    assert not [each for each in actions if isinstance(each, CreatePod)]
    assert written(actions)["phase"] == "Pending"
    ready = condition(written(actions)["conditions"], "Ready")
    assert ready is not None
    assert ready["reason"] == "NodeNotFound"
    assert ready["message"].startswith('node "ghost" not found; change spec.nodeName')
    vm["status"] = written(actions)
    assert plan(seen(vm, unreachable=ghost)) == ()
    assert [each for each in plan(seen(vm)) if isinstance(each, CreatePod)]
    assert [each for each in plan(seen(a_vm(nodeName="node1"), unreachable=ghost)) if isinstance(each, CreatePod)]


@pytest.mark.parametrize("phase", ["", *phases.VM_PHASES])
def test_removed_finalizer_is_restored_unless_being_deleted(phase: str) -> None:
    vm = a_vm(phase=phase, attempts=[an_attempt()] if phase else None)
    vm["metadata"]["finalizers"] = ["somebody/else"]
    before = plan(seen({**vm, "metadata": {**vm["metadata"], "finalizers": [names.VM_FINALIZER]}}, a_pod()))
    first, *rest = plan(seen(vm, a_pod()))
    assert first == AddFinalizer(names.VM_FINALIZER)
    assert [type(each) for each in rest] == [type(each) for each in before]
    vm["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert "AddFinalizer" not in kinds(plan(seen(vm, a_pod())))


@pytest.mark.parametrize("phase", ["Running", "Stopping", "Unknown"])
def test_the_attempt_follows_a_guest_that_moved(phase: str) -> None:
    target = a_pod(migration="m", node="node2")
    vm = a_vm(phase=phase, attempts=[an_attempt(nodeName="node1", runningTime="2026-01-01T00:00:10Z")])
    vm["status"] |= {"nodeName": "node2", "podName": name_of(target), "podUID": uid_of(target)}
    (action,) = plan(seen(vm, a_pod(), target, targets=TARGETS))
    assert isinstance(action, WriteStatus)
    attempt = {**vm["status"]["attempts"][0], "nodeName": "node2", "startNodeName": "node1", "podName": name_of(target)}
    assert action.status == {**vm["status"], "attempts": [attempt]}
    vm["status"] = written((action,))
    assert plan(seen(vm, a_pod(), target, targets=TARGETS)) == ()


def test_a_machine_that_migrates_says_so() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    moves = a_migration(phase="PreparingTarget", sourcePodUID=vm["status"]["podUID"], targetNode="node2")
    (action,) = plan(seen(vm, a_pod(), migrations=(moves,)))
    assert isinstance(action, WriteStatus)
    assert action.status == {
        **vm["status"],
        "migration": {"name": "move", "uid": "migration-uid", "targetNode": "node2", "phase": "PreparingTarget"},
    }
    vm["status"] = action.status
    assert plan(seen(vm, a_pod(), migrations=(moves,))) == ()
    (action,) = plan(seen(vm, a_pod()))
    assert written((action,))["migration"]["phase"] == "Cancelled"


STOP = {"action": "Stop", "runStrategy": "RerunOnFailure"}


@pytest.mark.parametrize(
    ("phase", "attempt", "pods", "more"),
    [
        ("Running", {"stopTime": "2026-01-01T00:00:40Z"}, (a_pod(deleting=True),), {"request": STOP}),
        ("Stopping", {"stopTime": "2026-01-01T00:00:40Z"}, (a_pod(deleting=True),), {"request": STOP}),
        ("Stopped", {"result": "Stopped", "endTime": "2026-01-01T00:00:50Z"}, (), {"request": STOP, "observedGeneration": 1}),
        ("Unknown", {}, (a_pod(deleting=True),), {}),
        ("Failed", {"result": "Failed", "endTime": "2026-01-01T00:00:50Z"}, (), {"request": STOP, "observedGeneration": 1}),
    ],
)
def test_migration_end_is_recorded_on_a_machine_being_stopped(
    phase: str, attempt: dict[str, Any], pods: tuple[dict[str, Any], ...], more: dict[str, Any]
) -> None:
    vm = a_vm(phase=phase, attempts=[an_attempt(**attempt)])
    record = {"name": "move", "uid": "migration-uid", "phase": "Running"}
    vm["status"] |= {"migration": record, **more}
    ended = a_migration(phase="Failed", sourcePodUID=vm["status"]["podUID"], endTime="2026-01-01T00:00:45Z")
    writes = [each for each in plan(seen(vm, *pods, migrations=(ended,))) if isinstance(each, WriteStatus)]
    assert [each.status for each in writes] == [
        {**vm["status"], "migration": {**record, "phase": "Failed", "endTime": "2026-01-01T00:00:45Z"}}
    ]
    vm["status"] = writes[0].status
    assert "WriteStatus" not in kinds(plan(seen(vm, *pods, migrations=(ended,))))


def test_a_stop_does_not_wait_for_what_is_said_of_the_migration() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    vm["status"] |= {"migration": {"name": "move", "uid": "migration-uid", "phase": "TargetReady"}, "request": STOP}
    moves = a_migration(phase="Running", sourcePodUID=vm["status"]["podUID"])
    first = plan(seen(vm, a_pod(), migrations=(moves,)))
    assert kinds(first) == ["WriteStatus", "DeletePod"]
    assert written(first)["migration"]["phase"] == "TargetReady"
    vm["status"] = written(first)
    assert kinds(plan(seen(vm, a_pod(), migrations=(moves,)))) == ["DeletePod", "WriteStatus"]


def test_nothing_is_written_of_a_machine_that_goes() -> None:
    vm = a_vm(phase="Stopped", attempts=[an_attempt(result="Stopped")], deleting=True)
    vm["status"]["migration"] = {"name": "move", "uid": "migration-uid", "phase": "Running"}
    assert kinds(plan(seen(vm))) == ["RemoveFinalizer"]


def test_a_start_with_the_mac_address_of_another_machine_is_told() -> None:
    first, *_, last = plan(seen(a_vm(), namesakes=("other", "third")))
    assert isinstance(first, CreatePod)
    assert isinstance(last, Emit)
    assert (last.type, last.reason) == ("Warning", "DuplicateMAC")
    assert "is also used by other, third:" in last.message
    assert plan(seen(a_vm(phase="Running", attempts=[an_attempt()]), a_pod(), namesakes=("other",))) == ()


def test_edited_phase_repeats_no_event() -> None:
    vm = a_vm(phase="Scheduling", attempts=[an_attempt()])
    assert kinds(plan(seen(vm, a_pod()))) == ["WriteStatus", "Emit", "Requeue"]
    vm["status"]["attempts"][0]["nodeName"] = "node1"
    assert kinds(plan(seen(vm, a_pod()))) == ["WriteStatus", "Requeue"]


def test_failures_in_a_row_are_followed_by_growing_pauses() -> None:
    attempts = [an_attempt(number, result="Failed", endTime="2026-01-01T00:00:58Z") for number in (1, 2)]
    vm = a_vm(phase="Failed", attempts=attempts, runStrategy="Always")
    actions = plan(seen(vm, rested=2.0))
    assert actions[-1] == Requeue(3.0)
    ready = condition(written(actions)["conditions"], "Ready")
    assert ready is not None
    assert (ready["reason"], "attempt 3 starts 5 s after" in ready["message"]) == ("CrashLoopBackOff", True)
    told = {**vm, "status": written(actions)}
    assert plan(seen(told, rested=3.0)) == (Requeue(2.0),)
    for skew in (timedelta(days=-1), timedelta(minutes=5), timedelta(days=1)):
        assert plan(seen(vm, rested=0.5, now=NOW + skew))[-1] == Requeue(4.5)
        assert "CreatePod" in kinds(plan(seen(vm, rested=5.0, now=NOW + skew)))


def test_guest_powering_off_at_once_restarts_with_back_off() -> None:
    attempts = [
        an_attempt(number, result="Succeeded", runningTime="2026-01-01T00:00:00Z", endTime="2026-01-01T00:00:01Z") for number in (1, 2)
    ]
    assert plan(seen(a_vm(phase="Succeeded", attempts=attempts, runStrategy="Always")))[-1] == Requeue(5.0)


def test_ended_guest_has_time_to_end_its_pod() -> None:
    vm = a_vm(phase="Failed", attempts=[an_attempt(result="Failed", endTime="2026-01-01T00:00:50Z")])
    assert plan(seen(vm, a_pod(), rested=10.0, now=NOW - timedelta(hours=1))) == (Requeue(20.0),)
    assert kinds(plan(seen(vm, a_pod(), rested=30.0))) == ["DeletePod"]


@pytest.mark.parametrize(("attempt", "expected"), [({}, "DeletePod"), ({"runningTime": "2026-01-01T00:00:30Z"}, "Requeue")])
def test_pod_of_a_guest_that_never_started_goes_at_once(attempt: dict[str, Any], expected: str) -> None:
    ended = an_attempt(result="Stopped", endTime="2026-01-01T00:00:55Z", **attempt)
    vm = a_vm(phase="Stopped", attempts=[ended])
    vm["status"]["request"] = {"action": "Restart", "runStrategy": "RerunOnFailure", "attempt": 2}
    assert kinds(plan(seen(vm, a_pod(), rested=1.0))) == [expected]


def test_a_deleted_machine_waits_for_its_pods_and_then_goes() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()], deleting=True)
    assert kinds(plan(seen(vm, a_pod()))) == ["DeletePod"]
    assert plan(seen(vm, a_pod(deleting=True))) == ()
    assert plan(seen(vm)) == (RemoveFinalizer(names.VM_FINALIZER),)


def test_a_merge_patch_says_what_went_away() -> None:
    vm = a_vm(phase="Running", attempts=[])
    vm["status"] |= {"domain": {"state": "running", "reason": "booted"}, "nodeName": "node1"}
    patch = status_patch(vm, {"phase": "Running", "attempt": 0, "attempts": [], "domain": {"state": "paused"}})
    assert patch["status"] == {"nodeName": None, "domain": {"state": "paused", "reason": None}}
    assert patch["metadata"] == {"resourceVersion": "1", "uid": UID}


PODS = st.lists(
    st.builds(
        a_pod,
        st.integers(1, 3),
        phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        node=st.sampled_from(["", "node1", "node2"]),
        exit_code=st.sampled_from([None, 0, 1]),
        deleting=st.booleans(),
        migration=st.sampled_from(["", "", "m"]),
    ),
    max_size=3,
    unique_by=name_of,
)
ATTEMPTS = st.integers(0, 3).flatmap(
    lambda count: st.tuples(
        *(
            st.builds(
                an_attempt,
                st.just(number),
                result=st.sampled_from(["Succeeded", "Failed", "Stopped"] + ([""] if number == count else [])),
                endTime=st.just("2026-01-01T00:00:30Z"),
                generation=st.integers(0, 2),
            )
            for number in range(1, count + 1)
        )
    )
)
REQUESTS = st.none() | st.builds(
    lambda action, attempt: {"action": action, "attempt": attempt, "runStrategy": "RerunOnFailure"},
    st.sampled_from(power.ACTIONS),
    st.integers(0, 4),
)


@st.composite
def observations(draw: st.DrawFn) -> Observed:
    attempts = [{key: value for key, value in each.items() if value} for each in draw(ATTEMPTS)]
    for each in attempts:
        if not each.get("result"):
            each.pop("endTime", None)
    vm = a_vm(
        phase=draw(st.sampled_from(phases.VM_PHASES)),
        attempts=attempts,
        deleting=draw(st.booleans()),
        runStrategy=draw(st.sampled_from(power.RUN_STRATEGIES)),
    )
    vm["metadata"]["generation"] = draw(st.integers(1, 2))
    if not is_deleting(vm):
        vm["metadata"]["finalizers"] = draw(st.sampled_from([[names.VM_FINALIZER], []]))
    if request := draw(REQUESTS):
        # Verbs request the next attempt at most.
        vm["status"]["request"] = {**request, "attempt": min(request["attempt"], len(attempts) + 1)}
    silent = draw(st.sets(st.sampled_from(["node1", "node2"])))
    mute = draw(st.sets(st.sampled_from(["node1", "node2"]))) - silent
    missing = draw(st.sampled_from([silent, set[str]()]))
    off = draw(st.sampled_from([missing, silent]))
    unreachable = Unreachable(frozenset(silent), dict.fromkeys(sorted(mute), 17.0), frozenset(missing), frozenset(off))
    targets = draw(st.sampled_from([frozenset(), TARGETS]))
    now = NOW + timedelta(hours=draw(st.integers(0, 1)))
    absent = draw(st.sampled_from([(), (ABSENT,), (dataclasses.replace(ABSENT, lingers=0.0),)]))
    lingers = draw(st.sampled_from([0.0, 50.0]))
    return seen(vm, *draw(PODS), unreachable=unreachable, now=now, targets=targets, lingers=lingers, absent_targets=absent)


def apply(observed: Observed, actions: tuple[Action, ...]) -> Observed:
    """Return the state after the actions: a model of :class:`controller.reconcilers.applying.Applier`."""
    vm, pods, made = copy.deepcopy(observed.vm), {name_of(pod): copy.deepcopy(pod) for pod in observed.pods}, ""
    for action in actions:
        match action:
            case CreatePod():
                made = f"uid-of-{name_of(action.pod)}"
                if (found := pods.get(name_of(action.pod))) is not None:  # a different pod has the name, and must go first
                    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
                    break
                pods[name_of(action.pod)] = {**action.pod, "status": {"phase": "Pending"}}
                pods[name_of(action.pod)]["metadata"]["uid"] = f"uid-of-{name_of(action.pod)}"
            case DeletePod():
                pod = pods[action.name]
                assert not is_deleting(pod)
                if pod_state.is_over(pod) or not pod_state.node_of(pod):
                    del pods[action.name]
                else:
                    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
            case WriteStatus():
                vm["status"] = copy.deepcopy(action.status) | ({action.uid_field: made} if action.uid_field else {})
            case AddFinalizer():
                vm["metadata"]["finalizers"].append(action.finalizer)
            case RemoveFinalizer():
                vm["metadata"]["finalizers"].remove(action.finalizer)
            case Emit() | Requeue() | ResizePod() | SetPodCondition() | AddOwner() | DeleteObject():  # the last three belong to other plans
                pass
    return dataclasses.replace(observed, vm=vm, pods=tuple(pods.values()))


@given(observations())
def test_a_plan_carried_out_leads_to_rest(observed: Observed) -> None:
    for _ in range(8):
        actions = tuple(each for each in plan(observed) if not isinstance(each, Requeue))
        if not actions:
            return
        observed = apply(observed, actions)
    pytest.fail(f"still planning {kinds(plan(observed))} for {json.dumps(observed.vm['status'])}")


@given(observations())
def test_pod_is_never_created_while_another_may_run(observed: Observed) -> None:
    before = copy.deepcopy(observed.vm), copy.deepcopy(observed.pods)
    actions = plan(observed)
    if created := [each for each in actions if isinstance(each, CreatePod)]:
        assert len(created) == 1
        # A living pod of the same name is this attempt's lock: kube-apiserver creates no second one.
        others = [pod for pod in observed.pods if name_of(pod) != name_of(created[0].pod)]
        assert not any(liveness.may_run(pod, observed.evidence) for pod in others)
        own = [pod for pod in observed.pods if uid_of(pod) == observed.vm["status"].get("podUID")]
        unreachable, (absent, *targets) = observed.evidence.unreachable, observed.evidence.absent
        assert own or not (absent.lingers and is_handled(observed.vm)) or absent.node in unreachable.whole
        for each in targets:
            assert each.node in unreachable.whole or not (each.lingers or each.node in unreachable.of_kubelet)
        assert not is_deleting(observed.vm)
    assert (observed.vm, observed.pods) == before
    assert plan(observed) == actions


@given(observations())
def test_a_status_is_written_at_most_once_a_pass(observed: Observed) -> None:
    assert len([each for each in plan(observed) if isinstance(each, WriteStatus)]) <= 1


@given(observations())
def test_a_machine_is_let_go_only_without_pods_that_may_run(observed: Observed) -> None:
    if any(isinstance(each, RemoveFinalizer) for each in plan(observed)):
        assert not any(liveness.may_run(pod, observed.evidence) for pod in observed.pods)


@given(observations())
def test_guest_starts_only_in_the_pod_with_the_recorded_uid(observed: Observed) -> None:
    before = observed.vm["status"].get("podUID")
    for each in plan(observed):
        if isinstance(each, WriteStatus) and not each.uid_field:
            assert each.status.get("podUID") == before


NODES = (a_node("node1", ROME, zone="1"), a_node("node2", MILAN, zone="2"))


def chosen(vm: dict[str, Any], **rest: Any) -> tuple[Any, dict[str, str]]:
    actions = plan(seen(vm, nodes=NODES, **{"kvm_offered": True, **rest}))
    (pod,) = (each.pod for each in actions if isinstance(each, CreatePod))
    return written(actions).get("cpu"), pod["spec"].get("nodeSelector", {})


def test_best_common_cpu_is_chosen_and_recorded_with_the_pod() -> None:
    features = ["amd-ssbd", "amd-stibp", "ibpb"]
    labels = {"cpu-model.node.kubevirt.io/EPYC-Rome-v2", *(f"cpu-feature.node.kubevirt.io/{each}" for each in features)}
    cpu, selector = chosen(a_vm())
    assert cpu == {"model": "EPYC-Rome-v2", "features": features}
    assert set(selector) == labels


def test_nodes_of_another_protocol_do_not_affect_the_cpu() -> None:
    incompatible = {"node1": "another protocol", **{f"other{number}": "another protocol" for number in range(600)}}
    cpu, _ = chosen(a_vm(), incompatible=incompatible)
    assert cpu["model"] == "EPYC-Milan"


def test_cpu_is_chosen_from_selected_nodes_and_features() -> None:
    cpu, _ = chosen(a_vm(nodeSelector={"zone": "2"}))
    assert cpu["model"] == "EPYC-Milan"
    said = [{"name": "virt-ssbd"}, {"name": "ibpb", "policy": "disable"}]
    cpu, _ = chosen(a_vm(domain={"cpu": {"features": said}, "devices": {}}))
    assert cpu == {"model": "EPYC-Milan", "features": ["amd-ssbd", "amd-stibp", "pcid"]}


@pytest.mark.parametrize("spec", [{"domain": {"cpu": {"model": "host-passthrough"}}}, {"domain": {"cpu": {"model": "EPYC"}}}])
def test_for_a_machine_that_names_one_none_is_chosen(spec: dict[str, Any]) -> None:
    cpu, selector = chosen(a_vm(**spec))
    assert cpu is None
    assert "cpu-model.node.kubevirt.io/EPYC-Rome-v2" not in selector


def test_chosen_cpu_is_cleared_with_the_next_attempt() -> None:
    vm = a_vm(phase="Failed", attempts=[an_attempt(endTime="2026-01-01T00:00:00Z", result="Failed")])
    vm["status"]["cpu"] = {"model": "Nehalem"}
    assert chosen(vm, rested=999.0, kvm_offered=False) == (None, {})
    assert chosen(vm, rested=999.0)[0]["model"] == "EPYC-Rome-v2"


def test_unschedulable_pod_reports_the_chosen_cpu() -> None:
    vm, pod = a_vm(phase="Scheduling", attempts=[an_attempt()]), a_pod(phase="Pending", node="")
    pod["spec"]["containers"][0]["resources"]["limits"][names.KVM_RESOURCE] = "1"
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}]
    vm["status"]["cpu"] = {"model": "EPYC"}
    ready = condition(written(plan(seen(vm, pod)))["conditions"], "Ready")
    assert ready is not None
    assert ready["message"] == (
        f"pod {name_of(pod)}: 0/2 nodes; status.cpu.model: EPYC needs a node with the label cpu-model.node.kubevirt.io/EPYC"
    )


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        (["ReadWriteMany"], None),
        (["ReadOnlyMany", "ReadWriteMany"], None),
        (["ReadWriteOnce"], "PersistentVolumeClaim data is not ReadWriteMany: two nodes cannot mount it at the same time (disk 'root')"),
        ([], "PersistentVolumeClaim data is not ReadWriteMany: two nodes cannot mount it at the same time (disk 'root')"),
    ],
)
def test_a_start_says_whether_its_claims_let_the_guest_migrate(modes: list[str], message: str | None) -> None:
    stale = {"type": "Migratable", "status": "False", "reason": "DisksNotShared", "message": "of the attempt before"}
    vm = a_vm() | {"status": {"conditions": [stale]}}
    vm["spec"]["domain"]["devices"]["disks"] = [{"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "data"}}]
    actions = plan(seen(vm, claims={"data": {"spec": {"accessModes": modes}, "status": {"phase": "Bound"}}}))
    status = next(each.status for each in actions if isinstance(each, WriteStatus))
    found = condition(status["conditions"], "Migratable")
    assert (found or {}).get("message") == message
    if found is not None:
        assert (found["status"], found["reason"]) == ("False", "DisksNotShared")


def rested(vm: dict[str, Any], **edit: Any) -> dict[str, Any]:
    vm["spec"].update(edit)
    vm["metadata"]["generation"] = 7
    actions = plan(seen(vm))
    vm["status"] = written(actions)
    assert kinds(plan(seen(vm))) == []
    return {each["type"]: each for each in vm["status"]["conditions"]}


def a_condition(kind: str, status: str, reason: str) -> dict[str, Any]:
    old = {"message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}
    return {"type": kind, "status": status, "reason": reason, **old}


def test_edit_of_a_stopped_machine_updates_its_ready_condition() -> None:
    """``kubectl wait`` uses the generation to see that a condition is about the current spec."""
    vm = a_vm(phase="Failed", attempts=[an_attempt(result="Failed", endTime="2026-01-01T00:00:00Z")], runStrategy="Manual")
    vm["status"]["conditions"] = [a_condition("Ready", "False", "Crashed")]
    ready = rested(vm, priorityClassName="high")["Ready"]
    assert (ready["reason"], ready["observedGeneration"]) == ("Crashed", 7)


@pytest.mark.parametrize(("before", "reason"), [("Halted", "StopRequested"), ("NotRequested", "StopRequested")])
def test_stopped_machine_keeps_the_last_ready_reason(before: str, reason: str) -> None:
    vm = a_vm(phase="Stopped", attempts=[an_attempt(result="Stopped", endTime="2026-01-01T00:00:00Z")])
    vm["status"] |= {"conditions": [a_condition("Ready", "False", before)], "request": STOP}
    ready = rested(vm, priorityClassName="high")["Ready"]
    assert (ready["status"], ready["reason"], ready["observedGeneration"]) == ("False", reason, 7)


FAILED = [an_attempt(number, nodeName="node1", result="Failed", endTime="2026-01-01T00:00:00Z", generation=7) for number in (1, 2, 3)]
SUCCEEDED = [an_attempt(result="Succeeded", endTime="2026-01-01T00:00:00Z", generation=7)]


@pytest.mark.parametrize(
    ("strategy", "phase", "attempts", "more", "expected"),
    [
        ("Halted", "", [], {}, "Current"),
        ("Manual", "", [], {}, "Current"),
        ("Halted", "Failed", FAILED, {}, "Current"),
        ("Halted", "Stopped", SUCCEEDED, {"request": {**STOP, "runStrategy": "Halted"}}, "Current"),
        ("RerunOnFailure", "Succeeded", SUCCEEDED, {}, "Current"),
        ("Once", "Succeeded", SUCCEEDED, {}, "Current"),
        ("RerunOnFailure", "Succeeded", SUCCEEDED, {"request": STOP}, "InProgress"),
        ("RerunOnFailure", "Failed", FAILED, {}, "Failed"),
        ("Once", "Failed", FAILED, {}, "Failed"),
        ("Manual", "Failed", FAILED, {}, "Failed"),
        ("RerunOnFailure", "Failed", FAILED[:1], {}, "InProgress"),
        ("RerunOnFailure", "", [], {}, "InProgress"),
    ],
)
def test_conditions_match_kstatus_expectations(
    strategy: str, phase: str, attempts: list[dict[str, Any]], more: dict[str, Any], expected: str
) -> None:
    vm = a_vm(phase=phase, attempts=attempts, runStrategy=strategy)
    vm["metadata"]["generation"] = 7
    before = [a_condition("Ready", "False", "Crashed")] if attempts else []
    vm["status"] = {"observedGeneration": 0, **(vm.get("status") or {}), "conditions": before, **more}
    vm["status"] = written(plan(seen(vm, rested=3600.0)))
    assert kstatus.result(vm) == expected
    if expected == "Failed":
        stalled = condition(vm["status"]["conditions"], "Stalled") or {}
        assert "no further automatic start" in stalled["message"]
        assert kinds(plan(seen(vm, rested=3600.0))) == []
        vm["status"]["request"] = {"action": "Start", "attempt": 4, "runStrategy": strategy, "generation": 7}
        vm["status"] = written(plan(seen(vm, rested=3600.0)))
        assert (condition(vm["status"]["conditions"], "Stalled"), kstatus.result(vm)) == (None, "InProgress")


def test_stop_ends_the_verdict_that_starts_are_given_up() -> None:
    vm = a_vm(phase="Failed", attempts=FAILED)
    vm["metadata"]["generation"] = 7
    before = [a_condition("Ready", "False", "Crashed"), a_condition("Stalled", "True", "Failed")]
    vm["status"] |= {"conditions": before, "request": STOP}
    assert rested(vm).keys() == {"Ready"}
