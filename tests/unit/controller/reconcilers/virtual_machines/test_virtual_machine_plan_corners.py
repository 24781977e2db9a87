from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta.objects import Object, condition, name_of, uid_of
from apiserver.apis.virt.lifecycle import conditions, phases, power, summary
from apiserver.apis.virt.lifecycle.failed_starts import Verdict
from apiserver.apis.virt.places import layout, names
from controller.reconcilers.actions import MIN_REQUEUE_SECONDS, Action, CreatePod, DeletePod, Emit, Requeue, WriteStatus
from controller.reconcilers.pods.liveness import Absent, Evidence
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines.attempts import is_handled
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.virtual_machine_plan import plan
from tests.unit.controller.reconcilers.builders import UID, a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
ENDED = "2026-01-01T00:00:30Z"
MOVED = "migrated: the guest continues in another pod"
LINGERS = Evidence(absent=(Absent(names.launcher_pod_name("testvm", UID, 1), "uid-of-own", "", 50.0),))
"""The VM's own pod was deleted, and its containers may run for 50 s."""


def seen(vm: dict[str, Any], *pods: dict[str, Any], **rest: Any) -> Observed:
    return Observed(vm=vm, pods=pods, settings=Settings("launcher"), **{"claims": {}, "now": NOW, **rest})


def kinds(actions: tuple[Action, ...]) -> list[str]:
    return [type(each).__name__ for each in actions]


def deletions(actions: tuple[Action, ...]) -> list[tuple[str, int | None]]:
    return [(each.name, each.grace_seconds) for each in actions if isinstance(each, DeletePod)]


def written(actions: tuple[Action, ...]) -> dict[str, Any]:
    return next(each.status for each in actions if isinstance(each, WriteStatus))


def loudness(actions: tuple[Action, ...]) -> list[str]:
    return [each.type for each in actions if isinstance(each, Emit)]


def pod_name(attempt: int) -> str:
    return names.launcher_pod_name("testvm", UID, attempt)


def over(attempt: int = 1, message: str = "", **rest: Any) -> dict[str, Any]:
    pod = a_pod(attempt, **{"phase": "Failed", "exit_code": 1, **rest})
    if message:
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = message
    return pod


def moved(attempt: int = 1, **rest: Any) -> dict[str, Any]:
    return over(attempt, MOVED, phase="Succeeded", exit_code=0, **rest)


def test_stray_pod_is_deleted_after_a_forced_deletion_of_the_own() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    assert deletions(plan(seen(vm, a_pod(7), evidence=LINGERS))) == [(pod_name(7), None)]


def test_pod_of_an_ended_attempt_is_not_restarted_when_off() -> None:
    vm = a_vm(phase="Stopped", attempts=[an_attempt(result="Stopped", endTime=ENDED)], runStrategy="Halted")
    assert kinds(plan(seen(vm, a_pod()))) == ["DeletePod"]


def test_an_end_that_was_seen_is_recorded_at_once() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    assert kinds(plan(seen(vm, over(), evidence=LINGERS))) == ["WriteStatus", "Emit"]


def test_nothing_is_said_of_a_guest_that_ended() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    vm["status"]["conditions"] = [
        {"type": each, "status": "True", "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"} for each in conditions.TYPES
    ]
    found = written(plan(seen(vm, over())))["conditions"]
    assert {each["type"] for each in found} == {"Ready", "DisksReady", "DisruptionTarget", "NodeLost"}


def test_only_the_pod_of_this_start_is_deleted_quickly() -> None:
    attempts = [an_attempt(1, result="Failed", endTime=ENDED), an_attempt(2)]
    vm = a_vm(phase="Scheduling", attempts=attempts, runStrategy="Halted")
    assert deletions(plan(seen(vm, a_pod(1), a_pod(2), a_pod(3)))) == [(pod_name(1), None), (pod_name(2), 1), (pod_name(3), None)]


def test_unrecorded_pod_of_the_next_attempt_is_deleted_quickly() -> None:
    vm = a_vm(phase="Failed", attempts=[an_attempt(result="Failed", endTime=ENDED)], runStrategy="Halted")
    assert deletions(plan(seen(vm, a_pod(1), a_pod(2)))) == [(pod_name(1), None), (pod_name(2), 1)]


@pytest.mark.parametrize(
    ("phase", "attempt", "handled"),
    [
        ("Scheduling", {}, False),
        ("Scheduled", {}, True),
        ("Running", {}, True),
        ("Stopping", {}, True),
        ("Unknown", {}, True),
        ("Unknown", {"result": "Stopped"}, False),
    ],
)
def test_virt_handler_writes_the_end_of_what_may_have_a_guest(phase: str, attempt: dict[str, Any], handled: bool) -> None:
    assert is_handled(a_vm(phase=phase, attempts=[an_attempt(**attempt)])) is handled


@pytest.mark.parametrize(("rested", "expected"), [(29.5, "Requeue"), (30.0, "DeletePod"), (31.0, "DeletePod")])
def test_a_pod_has_half_a_minute_to_follow_its_guest(rested: float, expected: str) -> None:
    vm = a_vm(phase="Failed", attempts=[an_attempt(result="Failed", endTime=ENDED)])
    assert kinds(plan(seen(vm, a_pod(), rested=rested))) == [expected]


def test_the_address_of_the_pod_is_handed_over() -> None:
    vm = a_vm(phase="Scheduling", attempts=[an_attempt()])
    bare = a_pod()
    del bare["status"]["podIP"]
    assert written(plan(seen(vm, a_pod())))["podIP"] == "10.0.0.1"
    assert written(plan(seen(vm, bare)))["podIP"] == ""


def test_the_last_half_second_of_a_minute_is_waited_for() -> None:
    vm, pod = a_vm(phase="Scheduling", attempts=[an_attempt()]), a_pod(phase="Pending")
    assert plan(seen(vm, pod, now=NOW - timedelta(seconds=0.5))) == (Requeue(MIN_REQUEUE_SECONDS),)


def test_obstacles_are_warning_events() -> None:
    starting, preparing = a_vm(phase="Scheduling", attempts=[an_attempt()]), a_pod(phase="Pending")
    refused = a_pod(phase="Pending", node="")
    refused["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}]
    scheduled = a_vm(phase="Scheduled", attempts=[an_attempt(nodeName="node1")])
    crashing = a_vm(phase="Failed", attempts=[an_attempt(each, result="Failed", endTime=ENDED) for each in (1, 2)], runStrategy="Always")
    late = NOW + timedelta(hours=1)
    for observed in (
        seen(starting, refused),
        seen(starting, preparing, now=late),
        seen(scheduled, a_pod(), now=late),
        seen(crashing),
        seen(a_vm(), refusal="quota exceeded"),
    ):
        assert loudness(plan(observed)) == ["Warning"]


@pytest.mark.parametrize(
    ("pod", "result", "told"),
    [
        (over(), "Failed", "Warning"),
        (over(deleting=True), "Failed", "Warning"),
        (over(phase="Succeeded", exit_code=0), "Succeeded", "Normal"),
        (over(phase="Succeeded", exit_code=0, deleting=True), "Stopped", "Normal"),
    ],
    ids=["crashed", "crashed while it was deleted", "powered off", "deleted"],
)
def test_a_failure_is_a_warning_and_no_deletion_hides_it(pod: dict[str, Any], result: str, told: str) -> None:
    actions = plan(seen(a_vm(phase="Running", attempts=[an_attempt()]), pod))
    assert (written(actions)["attempts"][0]["result"], loudness(actions)) == (result, [told])


@pytest.mark.parametrize(
    ("strategy", "request_", "message"),
    [
        ("Halted", None, "runStrategy is Halted"),
        ("RerunOnFailure", {"action": "Restart", "runStrategy": "RerunOnFailure", "attempt": 2}, "restart was requested"),
        ("RerunOnFailure", {"action": "Stop", "runStrategy": "RerunOnFailure", "attempt": 1}, "stop was requested"),
    ],
)
def test_unwanted_attempt_counts_as_stopped_however_it_ended(strategy: str, request_: dict[str, Any] | None, message: str) -> None:
    for pods in ([], [over()]):
        vm = a_vm(phase="Running", attempts=[an_attempt()], runStrategy=strategy)
        vm["status"]["request"] = request_
        ended = written(plan(seen(vm, *pods)))["attempts"][0]
        assert (ended["result"], ended["message"]) == ("Stopped", message)


def test_target_reports_the_end_only_of_a_guest_that_moved_there() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    target = over(phase="Succeeded", exit_code=0, migration="m", node="node2")
    targets = frozenset({name_of(target)})
    crashed = written(plan(seen(vm, over(), target, targets=targets)))["attempts"][0]
    assert (crashed["result"], crashed["message"]) == ("Failed", "crashed: QEMU (exit code 1)")
    assert written(plan(seen(vm, moved(), target, targets=targets)))["attempts"][0]["result"] == "Succeeded"


def test_a_guest_that_moved_twice_ended_in_its_last_pod() -> None:
    first, second = moved(migration="m", node="node2"), over(phase="Succeeded", exit_code=0, migration="n", node="node3")
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    vm["status"] |= {"podName": name_of(first), "podUID": uid_of(first)}
    targets = frozenset({name_of(first), name_of(second)})
    assert written(plan(seen(vm, first, second, targets=targets)))["attempts"][0]["result"] == "Succeeded"


@pytest.mark.parametrize(("result", "kept"), [("Failed", {2}), ("Stopped", set()), ("Succeeded", set())])
def test_log_of_the_last_failed_attempt_is_kept_until_the_next(result: str, kept: set[int]) -> None:
    attempts = [an_attempt(1, result="Failed", endTime=ENDED), an_attempt(2, result=result, endTime=ENDED)]
    pods = [over(1), over(2), over(7)]
    for strategy in ("Halted", "Always"):
        actions = plan(seen(a_vm(phase=result, attempts=attempts, runStrategy=strategy), *pods, rested=1000.0))
        assert deletions(actions) == [(pod_name(each), None) for each in (1, 2, 7) if each not in kept]
        assert ("CreatePod" in kinds(actions)) == (strategy == "Always")


def test_only_a_pod_of_the_same_name_makes_room_first() -> None:
    vm = a_vm(phase="Failed", attempts=[an_attempt(result="Failed", endTime=ENDED)], runStrategy="Always")
    namesake = plan(seen(vm, over(1), over(2), rested=1000.0))
    assert (deletions(namesake), kinds(namesake)) == ([(pod_name(2), None)], ["DeletePod", "Requeue"])
    (made,) = (each for each in plan(seen(vm, over(1), over(7), rested=1000.0)) if isinstance(each, CreatePod))
    assert name_of(made.pod) == pod_name(2)


def test_the_newest_attempts_are_kept() -> None:
    attempts = [an_attempt(each, result="Stopped", endTime=ENDED) for each in range(1, power.MAX_ATTEMPTS_KEPT + 1)]
    status = written(plan(seen(a_vm(phase="Stopped", attempts=attempts, runStrategy="Always"), rested=1000.0)))
    assert [each["number"] for each in status["attempts"]] == list(range(2, power.MAX_ATTEMPTS_KEPT + 2))


def test_which_claims_were_found_is_said() -> None:
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "data"}, "target": {"bus": "virtio"}}
    vm = a_vm(domain={"memory": {"guest": "128Mi"}, "devices": {"disks": [disk]}})
    claim = {"metadata": {"name": "data", "namespace": "default"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    for machine, claims, expected in ((vm, {"data": claim}, ("Found", "found data")), (a_vm(), {}, ("NoClaims", "no disk needs a claim"))):
        told = condition(written(plan(seen(machine, claims=claims)))["conditions"], "DisksReady")
        assert told is not None
        assert (told["reason"], told["message"]) == expected


def with_a_disk(**source: Any) -> dict[str, Any]:
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "Data", **source}}
    return {"memory": {"guest": "128Mi"}, "devices": {"disks": [disk]}}


def a_claim(**rest: Any) -> dict[str, Any]:
    return {"metadata": {"name": "data", "namespace": "default"}, "spec": {"accessModes": ["ReadWriteOnce"]}, **rest}


def test_claim_under_deletion_is_not_used() -> None:
    gone = a_claim()
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    actions = plan(seen(a_vm(domain=with_a_disk()), claims={"data": gone}))
    assert "CreatePod" not in kinds(actions)
    told = condition(written(actions)["conditions"], "DisksReady")
    assert told is not None
    assert (told["status"], told["reason"]) == ("False", "ClaimBeingDeleted")
    assert told["message"].startswith("PersistentVolumeClaim is being deleted: data; ")
    waiting = a_vm(domain=with_a_disk()) | {"status": written(actions)}
    told = condition(written(plan(seen(waiting)))["conditions"], "DisksReady")
    assert told is not None
    assert told["reason"] == "ClaimNotFound"
    assert "CreatePod" in kinds(plan(seen(waiting, claims={"data": a_claim()})))


CAUSE = "for the cause, such as its StorageClass: kubectl describe pvc data"


@pytest.mark.parametrize(
    ("phase", "scheduled", "lacks"),
    [("Pending", "False", True), ("Lost", "False", True), ("Pending", "", False), ("Bound", "False", False), ("", "False", False)],
)
def test_claim_without_volume_is_named_when_unschedulable(phase: str, scheduled: str, lacks: bool) -> None:
    pod = a_pod(phase="Pending", node="")
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    pod["status"]["conditions"] = [said] if scheduled else []
    vm = a_vm(phase="Scheduling", attempts=[an_attempt()], domain=with_a_disk())
    found = {"type": "DisksReady", "status": "True", "reason": "Found", "message": "found data", "observedGeneration": 1}
    vm["status"]["conditions"] = [{**found, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    actions = plan(seen(vm, pod, claims={"data": a_claim(status={"phase": phase} if phase else {})}))
    status = written(actions) if "WriteStatus" in kinds(actions) else vm["status"]
    told, ready = condition(status["conditions"], "DisksReady"), condition(status["conditions"], "Ready")
    assert told is not None
    assert (told["status"] == "False") is lacks
    if not lacks:
        return
    assert (told["reason"], told["message"]) == ("ClaimNotBound", f"PersistentVolumeClaim not bound: data ({phase}); {CAUSE}")
    assert ready is not None
    assert (ready["reason"], ready["message"]) == ("Unschedulable", f"pod {name_of(pod)}: 0/2 nodes; {told['message']}")
    vm["status"] = status
    assert summary.word(vm) == "ErrorUnschedulable"
    assert plan(seen(vm, pod, claims={"data": a_claim(status={"phase": phase})})) == ()
    for bound in (pod, a_pod(phase="Pending")):
        again = condition(written(plan(seen(vm, bound, claims={"data": a_claim(status={"phase": "Bound"})})))["conditions"], "DisksReady")
        assert again is not None
        assert (again["status"], again["reason"]) == ("True", "Found")
    handed = condition(written(plan(seen(vm, a_pod(), claims={"data": a_claim(status={"phase": "Bound"})})))["conditions"], "DisksReady")
    assert handed is not None
    assert handed["status"] == "True"


@pytest.mark.parametrize(
    ("size", "capacity", "told"),
    [
        ("10Gi", "64Mi", "disk 'root': source.create.size is 10Gi, but PersistentVolumeClaim data has only 64Mi: "),
        ("64Mi", "64Mi", ""),
        ("10Gi", "much", ""),
        ("10Gi", None, ""),
        (None, "64Mi", ""),
    ],
)
def test_disk_larger_than_its_claim_warns_and_starts(size: str | None, capacity: str | None, told: str) -> None:
    domain = with_a_disk(**({"create": {"size": size}} if size else {}))
    claim = a_claim(status={"phase": "Bound", **({"capacity": {"storage": capacity}} if capacity else {})})
    actions = plan(seen(a_vm(domain=domain), claims={"data": claim}))
    assert "CreatePod" in kinds(actions)
    warned = [each.message for each in actions if isinstance(each, Emit) and each.reason == "ClaimTooSmall"]
    assert [each.startswith(told) for each in warned] == ([True] if told else [])


def test_disk_that_outgrows_its_claim_warns_once() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt(nodeName="node1")], domain=with_a_disk(create={"size": "11Gi"}))
    vm["status"] |= {
        "nodeName": "node1",
        "conditions": [{"type": "DisksReady", "status": "True", "reason": "Found", "message": "found data"}],
    }
    claims = {"data": a_claim(status={"phase": "Bound", "capacity": {"storage": "2Gi"}})}
    actions = plan(seen(vm, a_pod(), claims=claims))
    text = "disk 'root': source.create.size is 11Gi, but PersistentVolumeClaim data has only 2Gi"
    (warned,) = (each for each in actions if isinstance(each, Emit))
    assert (warned.type, warned.reason, warned.message.startswith(f"{text}: ")) == ("Warning", "ClaimTooSmall", True)
    vm["status"] = written(actions)
    assert [each["message"] for each in vm["status"]["conditions"]] == [f"found data; {text}"]
    assert plan(seen(vm, a_pod(), claims=claims)) == ()
    expanded = plan(seen(vm, a_pod(), claims={"data": a_claim(status={"phase": "Bound", "capacity": {"storage": "20Gi"}})}))
    assert kinds(expanded) == ["WriteStatus"]
    assert [each["message"] for each in written(expanded)["conditions"]] == ["found data"]


def test_start_avoids_non_operational_nodes_that_it_may_not_try() -> None:
    bad = dict.fromkeys(("node1", "node2"), Verdict(NOW, 3, 1))
    (made,) = (each.pod for each in plan(seen(a_vm(), non_operational=bad, trials=frozenset({"node2"}))) if isinstance(each, CreatePod))
    (preferred,) = made["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["preference"]["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["node1"]}]


def test_a_start_is_on_no_node_yet() -> None:
    vm = a_vm(phase="Failed", attempts=[an_attempt(result="Failed", endTime=ENDED)])
    place = {"nodeName": "node1", "podIP": "10.0.0.1", "domain": {"state": "running"}, "interfaces": [], "graphics": []}
    vm["status"] |= place
    assert not set(place) & set(written(plan(seen(vm, rested=1000.0))))


def test_stopped_machine_is_not_ready_and_keeps_its_end_reason() -> None:
    vm = a_vm(phase="Stopped", attempts=[an_attempt(result="Stopped", endTime=ENDED)])
    vm["status"]["request"] = {"action": "Stop", "runStrategy": "RerunOnFailure", "attempt": 1, "generation": 1}
    vm["status"] |= {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True", "reason": "GuestRunning", "message": ""}]}
    ready = condition(written(plan(seen(vm)))["conditions"], "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "StopRequested")
    stopped = {"type": "Ready", "status": "False", "reason": "AttemptStopped", "message": "a stop was requested", "observedGeneration": 1}
    vm["status"]["conditions"] = [stopped]
    assert plan(seen(vm)) == ()


@pytest.mark.parametrize(("came_from", "is_at"), [("node1", "node2"), ("node2", "node1")])
def test_an_attempt_follows_its_guest_wherever_it_goes(came_from: str, is_at: str) -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt(nodeName=came_from)])
    vm["status"]["nodeName"] = is_at
    (found,) = written(plan(seen(vm, a_pod(node=is_at))))["attempts"]
    assert (found["nodeName"], found["startNodeName"]) == (is_at, came_from)
    vm["status"]["attempts"][0]["startNodeName"] = "node3"
    assert written(plan(seen(vm, a_pod(node=is_at))))["attempts"][0]["startNodeName"] == "node3"
    vm["status"]["attempts"] = []
    assert plan(seen(vm, a_pod(node=is_at))) == ()


@pytest.mark.parametrize(("strategy", "result"), [("Always", "Succeeded"), ("RerunOnFailure", "Failed")])
def test_stop_during_the_back_off_is_reported_as_stopped(strategy: str, result: str) -> None:
    attempts = [an_attempt(number, result=result, endTime="2026-01-01T00:00:58Z", nodeName="node1") for number in (1, 2)]
    vm = a_vm(phase=result, attempts=attempts, runStrategy=strategy)
    vm["status"] = written(plan(seen(vm, rested=2.0)))
    assert summary.word(vm) == "CrashLoopBackOff"
    vm["status"]["request"] = {"action": "Stop", "runStrategy": strategy, "generation": 1, "attempt": 2}
    write, told = plan(seen(vm, rested=3.0))
    status = written((write,))
    ready = condition(status["conditions"], "Ready")
    assert ready is not None
    assert (status["phase"], ready["reason"], ready["message"]) == ("Stopped", "StopRequested", "stop was requested")
    assert told == Emit("Normal", "Stopped", "stop was requested: no further attempt")
    stopped = {**vm, "status": status}
    assert plan(seen(stopped, rested=4.0)) == ()
    assert (summary.word(stopped), summary.reason(stopped)) == ("Stopped", "stop was requested")


def test_giving_up_in_the_back_off_keeps_the_result() -> None:
    attempts = [an_attempt(number, result="Failed", endTime="2026-01-01T00:00:58Z", nodeName="node1") for number in (1, 2)]
    vm = a_vm(phase="Failed", attempts=attempts)
    vm["status"] = written(plan(seen(vm, rested=2.0)))
    vm["spec"]["rerun"] = {"limit": 1}
    status = written(plan(seen(vm, rested=3.0)))
    ready = condition(status["conditions"], "Ready")
    assert ready is not None
    assert (status["phase"], ready["reason"]) == ("Failed", "RerunLimitReached")


def test_a_start_waits_for_a_disk_that_another_machine_writes_to() -> None:
    vm = a_vm()
    write, told = plan(seen(vm, claims_in_use=(("data", "other"), ("root", "third"))))
    status = written((write,))
    found = condition(status["conditions"], "DisksReady")
    assert found is not None
    held = "data by virtual machine other, root by virtual machine third"
    words = f"PersistentVolumeClaim in use: {held}; the virtual machine starts when that is no longer in use"
    assert (status["phase"], found["status"], found["reason"], found["message"]) == ("Pending", "False", "DiskInUse", words)
    assert told == Emit("Warning", "DiskInUse", words)
    waiting = {**vm, "status": status}
    assert summary.word(waiting) == "DiskInUse"
    assert plan(seen(waiting, claims_in_use=(("data", "other"), ("root", "third")))) == ()
    assert isinstance(plan(seen(waiting))[0], CreatePod)


def test_a_claim_without_a_file_system_cannot_be_shared_as_one() -> None:
    devices = {"filesystems": [{"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "Shared"}}]}
    claim = {"metadata": {"name": "shared", "namespace": "default"}, "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block"}}
    actions = plan(seen(a_vm(domain={"memory": {"guest": "128Mi"}, "devices": devices}), claims={"shared": claim}))
    told = condition(written(actions)["conditions"], "DisksReady")
    assert told is not None
    assert (told["status"], told["reason"]) == ("False", "ClaimIsBlock")
    assert "shared; spec.domain.devices.filesystems" in told["message"]
    assert "CreatePod" not in kinds(actions)


def test_pod_is_not_handed_over_while_its_disk_is_in_use() -> None:
    vm = a_vm(phase="Scheduling", attempts=[an_attempt()])
    write, told = plan(seen(vm, a_pod(), claims_in_use=(("data", "other"),)))
    status = written((write,))
    words = "PersistentVolumeClaim in use: data by virtual machine other; the virtual machine starts when that is no longer in use"
    assert (status["phase"], told) == ("Scheduling", Emit("Warning", "DiskInUse", words))
    waiting = {**vm, "status": status}
    assert summary.word({**waiting, "spec": {**vm["spec"], "runStrategy": "Always"}}) == "DiskInUse"
    assert plan(seen(waiting, a_pod(), claims_in_use=(("data", "other"),))) == ()

    of_server, of_node = (("export e of a port 1", "third"),), ("/a of node n by virtual machine x",)
    _, told = plan(seen(vm, a_pod(), claims_in_use=(("data", "other"),), servers_in_use=of_server, files_in_use=of_node))
    every = (
        "PersistentVolumeClaim in use: data by virtual machine other; disk of a server in use: export e of a port 1 by virtual machine "
        "third; file in use: /a of node n by virtual machine x"
    )
    assert told == Emit("Warning", "DiskInUse", f"{every}; the virtual machine starts when that is no longer in use")
    write, _ = plan(seen(vm, a_pod(), files_in_use=("/a of node n by virtual machine x",)))
    assert written((write,))["phase"] == "Scheduling"

    handed = written(plan(seen(waiting, a_pod())))
    assert handed["phase"] == "Scheduled"
    assert (condition(handed["conditions"], "DisksReady") or {})["status"] == "True"
    ended = written(plan(seen(waiting, a_pod(phase="Failed", exit_code=1))))
    assert condition(ended["conditions"], "DisksReady") is None


@pytest.mark.parametrize("vm", [a_vm(), a_vm(phase="Scheduling", attempts=[an_attempt()])], ids=["start", "guest"])
def test_start_and_guest_wait_for_a_network_disk_in_use(vm: Object) -> None:
    pods = (a_pod(),) if phases.phase_of(vm) else ()
    write, told = plan(seen(vm, *pods, servers_in_use=(("export e of a port 1", "other"),)))
    words = (
        "disk of a server in use: export e of a port 1 by virtual machine other; the virtual machine starts when that is no longer in use"
    )
    assert told == Emit("Warning", "DiskInUse", words)
    found = condition(written((write,))["conditions"], "DisksReady") or {}
    assert (found["status"], found["reason"], found["message"]) == ("False", "DiskInUse", words)


def test_block_claim_cannot_keep_firmware_state() -> None:
    firmware = {"bootloader": {"efi": {"persistent": True}}, "persistentState": {"claimName": "State"}}
    claim = {"metadata": {"name": "state", "namespace": "default"}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block"}}
    actions = plan(seen(a_vm(domain={"memory": {"guest": "128Mi"}, "firmware": firmware}), claims={"state": claim}))
    told = condition(written(actions)["conditions"], "DisksReady")
    assert told is not None
    assert (told["status"], told["reason"]) == ("False", "ClaimIsBlock")
    assert "spec.domain.firmware.persistentState" in told["message"]
    assert "CreatePod" not in kinds(actions)


@pytest.mark.parametrize("mode", ["Filesystem", None])
def test_lun_on_a_file_system_claim_is_reported_before_the_start(mode: str | None) -> None:
    disk = {"type": "PersistentVolumeClaim", "device": "lun", "source": {"name": "Raw"}}
    vm = a_vm(domain={"memory": {"guest": "128Mi"}, "devices": {"disks": [disk]}})
    actions = plan(seen(vm, claims={"raw": {"spec": {"volumeMode": mode} if mode else {}}}))
    told = condition(written(actions)["conditions"], "DisksReady")
    assert told is not None
    assert (told["status"], told["reason"]) == ("False", "ClaimIsFilesystem")
    assert "raw; device lun of a disk needs volume mode Block" in told["message"]
    assert "CreatePod" not in kinds(actions)
    assert "CreatePod" in kinds(plan(seen(vm, claims={"raw": {"spec": {"volumeMode": "Block"}}})))


def test_an_image_is_imported_into_a_device_as_well() -> None:
    http = {"url": "https://h/", "secretRef": {"name": "login"}, "caConfigMapRef": {"name": "authorities"}}
    source = {"name": "root", "import": {"http": http}}
    domain = {"memory": {"guest": "128Mi"}, "devices": {"disks": [{"name": "d", "type": "PersistentVolumeClaim", "source": source}]}}
    actions = plan(seen(a_vm(domain=domain), claims={"root": {"spec": {"volumeMode": "Block"}}}))
    (made,) = (each for each in actions if isinstance(each, CreatePod))
    (container,) = made.pod["spec"]["containers"]
    assert container["volumeDevices"] == [{"name": "disk-0", "devicePath": f"{layout.DEVICES_DIRECTORY}/d"}]
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"] if each["name"].startswith("disk-0")}
    secret, authorities = f"{layout.IMPORT_SECRETS_DIRECTORY}/d", f"{layout.IMPORT_AUTHORITIES_DIRECTORY}/d"
    assert mounted == {"disk-0-secret": secret, "disk-0-authorities": authorities}


def test_start_time_in_the_far_future_is_handled() -> None:
    vm = a_vm(phase="Scheduled", attempts=[an_attempt()])
    vm["status"]["phaseTransitionTimestamps"] = [{"phase": "Scheduled", "time": "9999-12-31T23:59:59Z"}]
    (again,) = plan(seen(vm, a_pod()))
    assert isinstance(again, Requeue)
