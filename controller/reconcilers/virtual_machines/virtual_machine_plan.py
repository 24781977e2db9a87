"""Decides about one virtual machine: turns what was observed into actions. Pure.

It decides the phases up to ``Scheduled``, and those after the pod's end; between them virt-handler decides. The rules, in order:

1. *Never two.* While any pod of the machine may run something, the plan creates no other one. :mod:`controller.reconcilers.pods.ownership`
   says which pods are the machine's, and :mod:`controller.reconcilers.pods.liveness` which may run, also after a deletion by force: its own
   pod, and a target of a migration.
2. A machine that should be off has no pods. The plan deletes them, and virt-launcher shuts the guest down within the machine's grace
   period.
3. When the last pod is over and virt-handler wrote no end of the guest, the end of the pod tells it (``attempt_end``).
4. A machine that should be on gets the pod of its next attempt (``attempt_start``), once no start rule finds an obstacle (``start_rules``).

An unreachable node ends no attempt. If its virt-handler is unreachable, the phase is ``Unknown``; otherwise the plan does not contradict
what virt-handler writes about its guests.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, condition, dig, finalizers_of, is_deleting, name_of, uid_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases, power
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import hot_plug
from controller.reconcilers.actions import (
    MIN_REQUEUE_SECONDS,
    Action,
    AddFinalizer,
    DeletePod,
    RemoveFinalizer,
    Requeue,
    WriteStatus,
)
from controller.reconcilers.launcher_pods import launcher_pod
from controller.reconcilers.pods import absences, liveness, pod_state
from controller.reconcilers.pods.liveness import Absent, Unknown
from controller.reconcilers.virtual_machines import (
    assignment,
    attachment_pods,
    attempt_end,
    attempt_start,
    attempts,
    disk_sizes,
    disruptions,
    image_removal,
    migration_record,
    outdated,
    pod_obstacles,
    pod_sizes,
    rest,
    restart_required,
    start_rules,
    statuses,
    unreachable_nodes,
)
from controller.reconcilers.virtual_machines.observed import Observed, own_pod

POD_END_SECONDS: Final = 30.0
QUICK_SECONDS: Final = 1
LOOK_SECONDS: Final = 2.0


def plan(seen: Observed) -> tuple[Action, ...]:
    """Return the next actions for the machine."""
    actions = disruptions.report(seen) or outdated.without_guest(seen) or restart_required.without_guest(seen) or _decide(seen)
    recorded = (*actions, *_record_migration(seen, actions))
    return (
        *_hold(seen),
        *recorded,
        *_attach(seen, recorded),
        *disruptions.until_settled(seen),
        *unreachable_nodes.until_unreachable(seen),
    )


def _hold(seen: Observed) -> tuple[Action, ...]:
    """Return the action that restores a removed finalizer, without which a deletion would not wait for the guest."""
    held = is_deleting(seen.vm) or names.VM_FINALIZER in finalizers_of(seen.vm)
    return () if held else (AddFinalizer(names.VM_FINALIZER),)


def _record_migration(seen: Observed, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Return the write of a changed ``status.migration``; empty if ``actions`` write the status or remove the finalizer."""
    if any(isinstance(each, WriteStatus | RemoveFinalizer) for each in actions):
        return ()
    record = migration_record.record(seen.vm, seen.migrations, seen.now)
    return () if record == dig_vm(seen.vm, "status", "migration") else (WriteStatus({**statuses.status_of(seen), "migration": record}),)


def _attach(seen: Observed, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Return actions for pods of hot-plugged disks and the pod's memory; empty as in :func:`_record_migration`."""
    if any(isinstance(each, WriteStatus | RemoveFinalizer) for each in actions):
        return ()
    found = attachment_pods.plan(seen)
    return found if any(isinstance(each, WriteStatus) for each in found) else (*found, *pod_sizes.plan(seen))


def _decide(seen: Observed) -> tuple[Action, ...]:
    decision = power.decide(seen.vm)
    alive = tuple(pod for pod in seen.pods if liveness.may_run(pod, seen.evidence))
    if not alive and (wait := _wait_out(seen, decision)):
        return wait
    if decision.reason == "Deleting":
        return _delete(seen, alive)
    current = power.current_attempt(seen.vm)
    if alive:
        if decision.on and not attempts.is_open(seen.vm) and _is_only_the_next(seen.vm, alive, decision.attempt):
            # A pass created it without recording it, or another client created it.
            return _wait_out(seen, decision) or attempt_start.begin(seen, decision)
        if not decision.on or (attempts.is_open(seen.vm) and (decision.attempt > current or _is_to_end(seen))):
            return _stop(seen, alive)
        return _watch_over(seen, alive) if attempts.is_open(seen.vm) else _let_end(seen, alive)
    if attempts.is_open(seen.vm):
        return _end_imports(seen) or attempt_end.record(seen, decision)
    if decision.on:
        return _start(seen, decision)
    return (*_clean_up(seen), *rest.report(seen, decision))


def _end_imports(seen: Observed) -> tuple[Action, ...]:
    """Return deletions of attachment pods that may write an image, and the wait for their end; empty if their claims are free."""
    filling = {pod.uid for _, pod in hot_plug.importing(seen.vm)}
    pods = tuple(each for each in seen.attachment_pods if uid_of(each) in filling and liveness.may_run(each, seen.evidence))
    return (*_delete_all(pods), *unreachable_nodes.wait_for(seen, pods), Requeue(LOOK_SECONDS)) if pods else ()


def _is_to_end(seen: Observed) -> bool:
    return attempts.is_stopped(seen.vm) or attempts.is_outdated(seen.vm, own_pod(seen, seen.pods))


def _delete(seen: Observed, alive: tuple[Object, ...]) -> tuple[Action, ...]:
    if others := tuple(pod for pod in alive if name_of(pod) != launcher_pod.removal_pod_name(seen.vm)):
        return (*_end_all(seen, others), *unreachable_nodes.wait_for(seen, others))
    if names.VM_FINALIZER not in finalizers_of(seen.vm):
        return ()
    if wait := _end_imports(seen):
        return wait
    removal = image_removal.remove(seen)
    if not removal.is_over:
        return removal.actions
    return (*removal.actions, *_delete_all(seen.pods), RemoveFinalizer(names.VM_FINALIZER))


def _stop(seen: Observed, alive: tuple[Object, ...]) -> tuple[Action, ...]:
    """Return actions that end the attempt and record it: the user may want the machine on again before its pods are over."""
    if not attempts.is_open(seen.vm) or attempts.is_stopped(seen.vm):
        return (*_end_all(seen, alive), *unreachable_nodes.wait_for(seen, alive))
    stopped = attempts.changed(seen.vm, power.current_attempt(seen.vm), {"stopTime": times.to_rfc3339(seen.now)})
    return (WriteStatus({**statuses.status_of(seen), "attempts": stopped}), *_end_all(seen, alive))


def _end_all(seen: Observed, pods: tuple[Object, ...]) -> tuple[Action, ...]:
    """Return the deletions of pods, with their guests' grace periods; a short one without a guest, and again if the verb stop shortened it.

    No other pass assigns the pod to virt-handler, because the status has the ``stopTime`` or the machine is being deleted. The pod stays
    until its kubelet has seen the container end.
    """
    empty, requested = _without_guest(seen), power.requested_grace(seen.vm)
    grace = None if requested is None else requested + launcher_pod.GRACE_MARGIN_SECONDS
    again = tuple(DeletePod(name_of(pod), uid_of(pod), grace) for pod in pods if _is_too_patient(pod, grace))
    first = (DeletePod(each.name, each.uid, QUICK_SECONDS if each.name == empty else grace) for each in _delete_all(pods))
    return (*first, *again)


def _is_too_patient(pod: Object, grace_seconds: int | None) -> bool:
    given = dig(pod, "metadata", "deletionGracePeriodSeconds")  # a deletion sets it
    return grace_seconds is not None and isinstance(given, int) and given > grace_seconds


def _without_guest(seen: Observed) -> str:
    """Return a pod's name that no virt-handler has: the attempt's in phase Scheduling, the next one's if none is open; else ""."""
    if phases.phase_of(seen.vm) == phases.SCHEDULING:
        return name_of(own_pod(seen, seen.pods) or {})
    return (
        "" if attempts.is_open(seen.vm) else names.launcher_pod_name(name_of(seen.vm), uid_of(seen.vm), power.current_attempt(seen.vm) + 1)
    )


def _delete_all(pods: tuple[Object, ...]) -> tuple[DeletePod, ...]:
    return tuple(DeletePod(name_of(pod), uid_of(pod)) for pod in pods if not is_deleting(pod))


def _watch_over(seen: Observed, alive: tuple[Object, ...]) -> tuple[Action, ...]:
    """Return actions that assign the attempt's pod to virt-handler once it runs, or report what prevents that, or a lost node."""
    phase, pod = phases.phase_of(seen.vm), own_pod(seen, alive)
    if pod is None:
        return _without_own_pod(seen, alive)
    found = liveness.verdict(pod, seen.evidence)
    if found == liveness.LOST or is_deleting(pod):
        return unreachable_nodes.wait_for(seen, alive)  # a user deleted it: its end decides what follows
    if phase in (phases.SCHEDULED, phases.RUNNING, phases.STOPPING, phases.UNKNOWN):
        return (restart_required.report(seen) or _limit_start(seen, pod)) if phase == phases.SCHEDULED else _follow(seen)
    if pod_state.is_running(pod):
        return assignment.assign(seen, pod)
    if isinstance(found, Unknown):
        return unreachable_nodes.wait_for(seen, alive)
    return pod_obstacles.report(seen, pod)


def _follow(seen: Observed) -> tuple[Action, ...]:
    """Return the write, with Events, that updates a running guest's status: place, outdated pod, edited hardware, grown disks."""
    old = statuses.status_of(seen)
    status = dict(old)
    place = {key: str(old.get(key) or "") for key in ("nodeName", "podName")}
    newest = power.newest_attempt(seen.vm)
    if newest and all(place.values()) and not all(newest.get(key) == value for key, value in place.items()):
        status["attempts"] = attempts.changed(seen.vm, power.current_attempt(seen.vm), place | attempts.moved(seen.vm, place["nodeName"]))
    status = disk_sizes.marked(seen, restart_required.marked(seen, outdated.marked(seen, status)))
    return (WriteStatus(status), *restart_required.events(seen, status), *disk_sizes.events(seen, status)) if status != old else ()


def _without_own_pod(seen: Observed, alive: tuple[Object, ...]) -> tuple[Action, ...]:
    return (*_delete_all(tuple(pod for pod in alive if name_of(pod) not in seen.targets)), *unreachable_nodes.wait_for(seen, alive))


def _wait_out(seen: Observed, decision: power.Power) -> tuple[Action, ...]:
    """Return a report and requeue while a guest may run in a pod that was deleted by force; else empty.

    It waits for the machine's own pod while virt-handler should write the guest's end. It waits for targets of migrations while an attempt
    is open, or the machine should be on or is being deleted: their virt-handler cannot write the end before it has the machine.
    """
    found = {each: liveness.verdict(each, seen.evidence) for each in _waited_for(seen, decision)}
    waits = {pod: liveness.seconds_to_next_look(each) for pod, each in found.items() if isinstance(each, Unknown)}
    if not waits:
        return ()
    longest = max((each for each in waits if each.migration), key=waits.__getitem__, default=None)
    lost = next((pod for pod, each in found.items() if each == liveness.LOST), None)
    if longest is not None:
        report = _report_absent_target(seen, longest)
    else:
        report = unreachable_nodes.report_deleted(seen, lost) if lost is not None else ()
    return (*report, Requeue(max(*waits.values(), MIN_REQUEUE_SECONDS)))


def _waited_for(seen: Observed, decision: power.Power) -> Iterator[Absent]:
    for_targets = attempts.is_open(seen.vm) or decision.on or decision.reason == "Deleting"
    for_own = attempts.is_handled(seen.vm) and own_pod(seen, seen.pods) is None
    return (each for each in seen.evidence.absent if (for_targets if each.migration else for_own))


def _report_absent_target(seen: Observed, target: Absent) -> tuple[Action, ...]:
    stored = condition(dig_vm(seen.vm, "status", "conditions"), conditions.READY) or {}
    if stored.get("reason") in (conditions.START_TIMEOUT, conditions.LIVENESS_FAILED):
        return ()
    message = (
        f"target pod {target.name} of migration {target.migration} was deleted, but it is not certain that its containers ended: the "
        f"guest may still run in it until the kubelet of {f'node {target.node}' if target.node else 'its node'} "
        "ends it; the virtual machine starts no other pod before that is certain"
        f"{unreachable_nodes.if_off(target.node) if liveness.verdict(target, seen.evidence) == liveness.LOST else ''}"
    )
    return statuses.report(seen, "Unknown", absences.TARGET_MAY_RUN, message)


def _let_end(seen: Observed, alive: tuple[Object, ...]) -> tuple[Action, ...]:
    """Return actions after the guest ended: its pod is deleted only if it hangs or had no guest, because a deletion removes its log."""
    never_started = power.newest_attempt(seen.vm).get("result") == power.RESULT_STOPPED and not power.has_run(seen.vm)
    left = POD_END_SECONDS - seen.rested
    if left > 0 and not never_started and dig_vm(seen.vm, "status", "attempts"):
        return (*unreachable_nodes.wait_for(seen, alive), Requeue(max(left, MIN_REQUEUE_SECONDS)))
    return (*_delete_all(alive), *unreachable_nodes.wait_for(seen, alive))


def _limit_start(seen: Observed, pod: Object) -> tuple[Action, ...]:
    """Return a requeue, or a report and the deletion of a late guest's pod."""
    left = attempts.start_left(seen.vm, pod, seen.now)
    if left is None:
        return ()
    if left > timedelta():
        return (Requeue(max(left.total_seconds(), MIN_REQUEUE_SECONDS)),)
    message = f"the guest did not run within {attempts.start_seconds(seen.vm)} s on node {pod_state.node_of(pod)}"
    return (*statuses.report(seen, "False", conditions.START_TIMEOUT, message), DeletePod(name_of(pod), uid_of(pod)))


def _start(seen: Observed, decision: power.Power) -> tuple[Action, ...]:
    if (obstacle := start_rules.first_obstacle(seen, decision)) is not None:
        told = statuses.wait(seen, obstacle)
        return told if obstacle.phase else (*_clean_up(seen), *told)
    name = names.launcher_pod_name(name_of(seen.vm), uid_of(seen.vm), decision.attempt)
    if namesakes := tuple(each for each in seen.pods if name_of(each) == name):  # over; their name is needed
        return (*_delete_all(namesakes), Requeue(MIN_REQUEUE_SECONDS))
    return (*_clean_up(seen), *attempt_start.begin(seen, decision))


def _is_only_the_next(vm: Object, alive: tuple[Object, ...], attempt: int) -> bool:
    return [(name_of(each), is_deleting(each)) for each in alive] == [(names.launcher_pod_name(name_of(vm), uid_of(vm), attempt), False)]


def _clean_up(seen: Observed) -> tuple[Action, ...]:
    """Return the deletions of pods that are over; that of a failed attempt only with the next, because its log tells why."""
    attempts = dig_vm(seen.vm, "status", "attempts")
    kept = attempts[-1].get("podName") if attempts and attempts[-1].get("result") == power.RESULT_FAILED else ""
    return _delete_all(tuple(pod for pod in seen.pods if name_of(pod) != kept and not liveness.may_run(pod, seen.evidence)))
