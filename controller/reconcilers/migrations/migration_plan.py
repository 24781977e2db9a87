"""Plans the next actions of one live migration. Pure.

- Until ``PreparingTarget`` this module decides. From ``TargetReady`` on only the two virt-handlers know on which side the domain is, and
  this module ends a Migration only if the pods' states prove it.
- If the source pod's termination message says that the guest left, it releases the guest (``apis.virt.lifecycle.departure``), in case no
  virt-handler read the message.
- Writes carry the observed resourceVersion, and the source's virt-handler writes ``Running`` before it starts libvirt's migration. So a
  migration that was cancelled here never begins.
- A target pod that was deleted by force may contain the guest, or a QEMU for it, until its grace period is over, so nothing follows before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import (
    Object,
    condition,
    finalizers_of,
    generation_of,
    is_deleting,
    name_of,
    namespace_of,
    new_condition,
    uid_of,
    with_condition,
    without_condition,
)
from apiserver.apis.virt.hardware import disks, memory
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import departure, evictions, migration_attempts, migration_policies, phases, power
from apiserver.apis.virt.lifecycle.conditions import NETWORK_NOT_FOUND, NETWORK_NOT_USABLE, NOT_FOUND_OF
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import chosen_cpu
from apiserver.apis.virt.spec.described import domain_of
from controller.reconcilers.actions import MIN_REQUEUE_SECONDS, Action, CreatePod, DeletePod, Emit, RemoveFinalizer, Requeue, WriteStatus
from controller.reconcilers.launcher_pods import cpu, launcher_pod, scheduling
from controller.reconcilers.migrations import migratable, migration_bounds, migration_queue, migration_retries, unschedulable
from controller.reconcilers.migrations.migration_bounds import (
    NODE_SECONDS,
    PREPARE_SECONDS,
    RUN_SECONDS,
    SOURCE_UNKNOWN,
    START_SECONDS,
    ago,
)
from controller.reconcilers.migrations.migration_queue import Turn
from controller.reconcilers.migrations.migration_retries import TARGET_SCHEDULED
from controller.reconcilers.pods import absences, liveness, mounted_sources, networks, ownership, pod_state, sandboxes
from controller.reconcilers.pods.kubelet_events import KubeletEvents
from controller.reconcilers.pods.liveness import NOTHING, Evidence, Unknown
from controller.reconcilers.settings import MigrationLimits, Settings

HANDLER_SECONDS: Final = 3
"""The target's virt-handler writes the end and statistics after it moved the machine."""
LAST_WORDS_SECONDS: Final = 15
"""For virt-handlers to report the guest's fate if the source pod ended without saying that it left."""
SOURCE_END_SECONDS: Final = 25
"""The source's virt-launcher forwards connections for a few seconds after the guest left."""
STALE_SECONDS: Final = 1
"""Until an outdated copy of a machine is read again."""
SOURCE_WORD_SECONDS: Final = 60
"""For the source's virt-handler to report that the guest stayed. libvirt needs half a minute if the target's node is gone."""
ATTEMPT_FAILED: Final = "AttemptFailed"
QUEUED: Final = "Queued"
OVERDUE: Final = "Overdue"
GOES_ON: Final = "migration continues"
SUCCEEDED: Final = "Succeeded"
_BY_STOP: Final = frozenset({"NotRunning", "SourceChanged", "SourcePodEnded"})
"""Reasons of a Migration that ended with its guest's run."""
_OF_KUBELET: Final = frozenset({*NOT_FOUND_OF.values(), NETWORK_NOT_FOUND, NETWORK_NOT_USABLE, pod_state.CREATING})
"""The target's kubelet cannot set up volumes or networks."""
_OURS: Final = frozenset({"", phases.PENDING, phases.SCHEDULING, phases.PREPARING_TARGET})


@dataclass(frozen=True, slots=True)
class Observed:
    """What :func:`plan` decides from: a migration, its machine and pods, and the queue's decision (``turn``).

    ``refusal``: why the target pod was refused; ``source_labels``: the source node's.
    """

    migration: Object
    vm: Object | None
    source: Object | None
    """By the uid of ``status.sourcePod``; before that is set, the machine's pod."""
    target: Object | None
    """By its computed name, or by uid once that is recorded."""
    claims: Mapping[str, Object | None]
    now: datetime
    settings: Settings
    refusal: str = ""
    source_labels: Mapping[str, str] = field(default_factory=dict)
    policy: Object | None = None
    """The MigrationPolicy, or ``NO_POLICY``; None: not read, because the migration does not begin."""
    turn: Turn = field(default_factory=Turn)
    limits: MigrationLimits = field(default_factory=MigrationLimits)
    incompatible: Mapping[str, str] = field(default_factory=dict)
    """By node; each has an incompatible virt-handler."""
    fenced: frozenset[str] = frozenset()
    """Nodes where no pod of the machine may start."""
    evidence: Evidence = NOTHING
    """About a target that is gone and was not seen to end."""
    kubelet: KubeletEvents = field(default_factory=KubeletEvents)
    """While the target has a node and does not run."""
    networks: networks.Found = field(default_factory=networks.Found)
    coming: tuple[str, ...] = ()
    """Network cards that the guest can get in a new target."""


def may_bring(migration: Object) -> bool:
    """Return whether the migration still needs its first target, the only one that may get further networks."""
    return phases.phase_of(migration) in ("", phases.PENDING) and not migration_attempts.number_of(migration)


def relies_on_node(migration: Object, vm: Object | None, source: Object | None) -> bool:
    """Return whether the migration still needs a target, and its guest uses the CPU features of its present node."""
    begins = phases.phase_of(migration) in ("", phases.PENDING)
    return begins and vm is not None and pod_state.has_kvm(source) and cpu.is_the_nodes(vm)


def begins(actions: tuple[Action, ...]) -> bool:
    """Return whether the actions create the target pod, so the migration's policy is needed."""
    return any(isinstance(each, CreatePod) for each in actions)


def plan(seen: Observed) -> tuple[Action, ...]:
    """Return the next actions for the migration. If they create the target (:func:`begins`), plan again with ``policy`` in ``seen``."""
    phase = phases.phase_of(seen.migration)
    if phase in phases.MIGRATION_FINAL:
        return _tidy_up(seen)
    if phase in _OURS:
        if is_deleting(seen.migration):
            return _finish(seen, phases.CANCELLED, "Cancelled", "the migration was deleted before it began")
        if (why := _impossible(seen)) is not None:
            return _finish(seen, phases.FAILED, *why)
        if phase == phases.PREPARING_TARGET:
            return _await_target(seen)
        if migration_queue.waits(seen.migration) and not seen.turn.may_begin and seen.target is None:
            return _wait(seen)
        if pause := _back_off_left(seen, seen.migration):
            return (Requeue(pause),)
        left = migration_bounds.target_left(seen.migration, seen.target, seen.now, seen.limits, is_refused=bool(seen.refusal))
        if left is not None and left <= 0:
            return _give_up(seen)
        if phase in migration_queue.WAITING:
            return _create_target(seen)
        if migration_bounds.is_to_note_node(seen.migration, seen.target, seen.limits):
            return _note_node(seen)
        return _schedule(seen) if left is None else (*_schedule(seen), _again(left))
    return _oversee(seen)


def outcome_event(migration: Object, vm: Object, actions: Iterable[Action]) -> Emit | None:
    """Return the machine's Event about a finished Migration if the actions remove its finalizer, else None."""
    phase, name = phases.phase_of(migration), name_of(migration)
    if phase not in phases.MIGRATION_FINAL or not any(isinstance(each, RemoveFinalizer) for each in actions):
        return None
    if phase == phases.SUCCEEDED:
        source, target = dig_migration(migration, "status", "sourceNode"), dig_migration(migration, "status", "targetNode")
        return Emit("Normal", "Migrated", f"migration {name} moved the guest from {source} to {target}")
    message = f"migration {name}: {dig_migration(migration, 'status', 'message') or phase}"
    return Emit("Normal" if _is_stopped(migration, vm) else "Warning", f"Migration{phase}", message)


def _is_stopped(migration: Object, vm: Object | None) -> bool:
    if vm is None or not (source := dig_migration(migration, "status", "sourcePod")):
        return False
    left = (each for each in dig_vm(vm, "status", "attempts") or () if each.get("podName") == source)
    return bool(power.end_asked_for(vm)) or any(each.get("stopTime") for each in left)


def _wait(seen: Observed) -> tuple[Action, ...]:
    """Return actions that report why a queued Migration waits, or fail one for an eviction after ``NODE_SECONDS`` without a drain."""
    first = dig_migration(seen.migration, "status", "phaseTransitionTimestamps") or []
    if _is_ours(seen) and not seen.turn.is_drain and first and ago(first[0]["time"], seen.now) >= NODE_SECONDS:
        # It would begin whenever there is room.
        return _finish(seen, phases.FAILED, QUEUED, f"it did not start within {NODE_SECONDS} s: {seen.turn.message}")
    status = phases.enter(_status(seen), phases.PENDING, seen.now)
    status |= {"message": seen.turn.message, "conditions": _conditions(seen, "Unknown", QUEUED, seen.turn.message)}
    again = Requeue(seen.settings.times.queue)
    if status == (seen.migration.get("status") or {}):
        return (again,)
    stored = condition(dig_migration(seen.migration, "status", "conditions"), SUCCEEDED) or {}
    new = () if stored.get("reason") == QUEUED else (Emit("Normal", QUEUED, seen.turn.message),)
    return (WriteStatus(status), *new, again)


def _give_up(seen: Observed) -> tuple[Action, ...]:
    why, ours = dig_migration(seen.migration, "status", "message") or "virt-controller could not create the target pod", _is_ours(seen)
    if node := pod_state.node_of(seen.target):
        message = f"the target pod did not run on node {node} within {START_SECONDS if ours else RUN_SECONDS} s: {why}"
        return _finish(seen, phases.FAILED, "TargetNotRunning", message)
    seconds = NODE_SECONDS if ours else seen.limits.scheduling_seconds
    return _finish(seen, phases.FAILED, "Unschedulable", f"no node could run the target pod within {seconds} s: {why}")


def _note_node(seen: Observed) -> tuple[Action, ...]:
    node = pod_state.node_of(seen.target)
    new = {"type": TARGET_SCHEDULED, "status": "True", "reason": "Scheduled", "message": f"the target pod was scheduled to node {node}"}
    conditions = with_condition(dig_migration(seen.migration, "status", "conditions"), new, now=times.to_rfc3339(seen.now))
    return (WriteStatus({**_status(seen), "conditions": conditions}), Requeue(RUN_SECONDS))


def _is_ours(seen: Observed) -> bool:
    return evictions.is_by_controller(seen.migration)


def _impossible(seen: Observed) -> tuple[str, str] | None:
    vm, selected = seen.vm, dig_migration(seen.migration, "spec", "selector", "name")
    if vm is None:
        message = (
            f"virtual machine {selected!r} not found in namespace {namespace_of(seen.migration)}; create it, then create another Migration"
        )
        return "VirtualMachineNotFound", message
    decision = power.decide(vm)
    if phases.phase_of(vm) == phases.UNKNOWN:
        return SOURCE_UNKNOWN, f"the node of virtual machine {name_of(vm)} does not report"
    if phases.phase_of(vm) != phases.RUNNING or not decision.on or decision.attempt > power.current_attempt(vm):
        why = decision.message if phases.phase_of(vm) == phases.RUNNING else f"its phase is {phases.phase_of(vm) or 'not set'}"
        return "NotRunning", f"virtual machine {name_of(vm)} is not running: {why}"
    if (found := migratable.barrier(vm, seen.claims)) is not None:
        return found.reason, found.message
    if (source := dig_migration(seen.migration, "status", "sourcePod")) and source != dig_vm(vm, "status", "podName"):
        return "SourceChanged", f"virtual machine {name_of(vm)} was restarted after the migration was created"
    return None


def _create_target(seen: Observed) -> tuple[Action, ...]:
    if seen.vm is None or seen.source is None:
        return (Requeue(1),)
    now = times.to_rfc3339(seen.now)
    if seen.refusal:
        began = dig_migration(seen.migration, "status", "startTime") or now
        return _report(seen, phases.PENDING, "FailedCreate", seen.refusal, startTime=began)
    node = dig_vm(seen.vm, "status", "nodeName") or pod_state.node_of(seen.source)
    # A guest with kvm needs kvm.
    kvm = pod_state.has_kvm(seen.source)
    selector = dig_migration(seen.migration, "spec", "nodeSelector") or {}
    placement = scheduling.Placement(
        kvm=kvm,
        avoid_nodes=migration_attempts.nodes_of(seen.migration),
        not_on_node=node,
        never_on=scheduling.never_on(seen.vm, seen.incompatible, seen.fenced),
        node_selector=selector,
        source_labels=cpu.of_source(seen.source_labels),
        chosen=chosen_cpu.running(seen.vm) if kvm else None,
    )
    attempt = power.current_attempt(seen.vm)
    pod = launcher_pod.target_pod(seen.vm, seen.migration, attempt, seen.claims, seen.settings, placement, seen.coming)
    message = f"pod {name_of(pod)} was created"
    status = {
        **phases.enter(_without_obstacle(seen), phases.SCHEDULING, seen.now),
        "startTime": dig_migration(seen.migration, "status", "startTime") or now,
        "sourceNode": node,
        "sourcePod": name_of(seen.source),
        "sourcePodUID": uid_of(seen.source),
        "targetPod": name_of(pod),
        "attempt": max(migration_attempts.number_of(seen.migration), 1),
        "message": message,
    }
    if "options" not in status:  # another attempt uses the options of the first
        status |= _terms(seen.vm, seen.policy or migration_policies.NO_POLICY, seen.settings)
    created = WriteStatus(status, "targetPodUID")
    return (CreatePod(pod, seen.vm), created, Emit("Normal", "SuccessfulCreate", f"created target pod {name_of(pod)}"))


def _terms(vm: Object, policy: Object, settings: Settings) -> Object:
    """Return the status field ``options``, and ``policy`` if there is one; later changes of the policy do not affect them."""
    domain = domain_of(vm)
    copied = sum(disks.overlay_bytes(each) for each in disks.defaulted(domain))
    options = migration_policies.options(policy, memory.guest_bytes(domain), settings.migrations, copied_bytes=copied)
    return {"policy": name_of(policy), "options": options} if policy else {"options": options}


def _schedule(seen: Observed) -> tuple[Action, ...]:
    target = seen.target
    if migration_attempts.failure_of(seen.migration) is not None:
        return _retry(seen)
    if (ended := _target_ended(seen)) is not None:
        return ended
    if target is None or not pod_state.is_running(target):
        return _report_obstacle(seen, target) if target is not None else ()
    node = pod_state.node_of(target)
    status = {
        **phases.enter(_without_obstacle(seen), phases.PREPARING_TARGET, seen.now),
        "targetNode": node,
        "targetPodUID": uid_of(target),
        "targetPodIPs": list(pod_state.addresses_of(target)),
        "message": f"virt-handler of node {node} is preparing the target",
    }
    return (
        WriteStatus(status),
        Emit("Normal", "Scheduled", f"target pod {name_of(target)} runs on node {node}"),
        Requeue(PREPARE_SECONDS),
    )


def _report_obstacle(seen: Observed, target: Object) -> tuple[Action, ...]:
    found = pod_state.obstacle(target)
    if found is None:
        return _report_kubelet(seen, target)
    told = [f"pod {name_of(target)}: {found[1]}"]
    if pod_state.is_unschedulable(target):
        told += unschedulable.reasons(seen.migration, seen.vm, target, seen.incompatible)
    return _report(seen, phases.SCHEDULING, found[0], "; ".join(told))


def _report_kubelet(seen: Observed, target: Object) -> tuple[Action, ...]:
    waited = mounted_sources.waiting_seconds(target, seen.now)
    if waited is None or seen.vm is None:
        return _forget_kubelet(seen, target)
    node, mounts = pod_state.node_of(target), seen.kubelet.mounts
    told = (
        networks.fault(seen.networks, GOES_ON)
        or sandboxes.fault(seen.networks.definitions, node, seen.kubelet.sandboxes, mounts, GOES_ON)
        or mounted_sources.fault(seen.vm, mounts, GOES_ON)
    )
    again = min(max(waited, mounted_sources.REQUEUE_SECONDS[0]), mounted_sources.REQUEUE_SECONDS[1])
    if told is None and waited >= pod_state.SLOW_SECONDS:
        told = pod_state.CREATING, pod_state.slow_words(target)
    if told is None:
        return (Requeue(again),)
    return (*_report(seen, phases.SCHEDULING, told[0], f"pod {name_of(target)}: {told[1]}"), Requeue(again))


def _forget_kubelet(seen: Observed, target: Object) -> tuple[Action, ...]:
    stored = condition(dig_migration(seen.migration, "status", "conditions"), SUCCEEDED) or {}
    if stored.get("reason") not in _OF_KUBELET:
        return ()
    message = f"pod {name_of(target)} has its volumes and networks; the kubelet is creating its container"
    return (WriteStatus({**_without_obstacle(seen), "message": message}),)


def _await_target(seen: Observed) -> tuple[Action, ...]:
    if migration_attempts.failure_of(seen.migration) is not None:
        return _retry(seen)
    if (ended := _target_ended(seen)) is not None:
        return ended
    left = PREPARE_SECONDS - (seen.now - _entered(seen, phases.PREPARING_TARGET)).total_seconds()
    if left > 0:
        return (_again(left, PREPARE_SECONDS),)
    node = dig_migration(seen.migration, "status", "targetNode")
    return _finish(
        seen, phases.FAILED, "TargetNotReady", f"virt-handler of node {node} did not prepare the target within {PREPARE_SECONDS} s"
    )


def _oversee(seen: Observed) -> tuple[Action, ...]:
    """Return the actions while the guest may be moving: only those that the pods' states justify."""
    target_name = dig_migration(seen.migration, "status", "targetPod")
    if seen.vm is None:
        return _finish(seen, phases.FAILED, "VirtualMachineNotFound", "the virtual machine was deleted")
    if dig_vm(seen.vm, "status", "podName") == target_name:
        # The target's virt-handler moves the machine first.
        if left := _handlers_turn(seen):
            return (_again(left.total_seconds()),)
        node = dig_migration(seen.migration, "status", "targetNode")
        return _finish(seen, phases.SUCCEEDED, "Succeeded", f"the guest moved to node {node}")
    if (unknown := _absent_target(seen)) is not None:
        return (*_wait_out(seen), _again(liveness.seconds_to_next_look(unknown)))
    if phases.phase_of(seen.vm) in phases.ENDED:
        return _finish(seen, phases.FAILED, "NotRunning", f"virtual machine {name_of(seen.vm)} ended: {phases.phase_of(seen.vm)}")
    if _has_failed(seen):
        return _retry(seen)
    if (ended := _target_ended(seen)) is not None:
        return ended
    if not liveness.may_run(seen.source, seen.evidence) and not departure.is_released(seen.migration):
        return _source_ended(seen)
    return _bound(seen)


def _absent_target(seen: Observed) -> Unknown | None:
    """Return the verdict on an absent target pod if something of the guest may run in it, else None.

    Nothing of the guest goes there before ``Running`` is written. After that no write succeeds that was decided before.
    """
    began = phases.phase_of(seen.migration) == phases.RUNNING or departure.is_released(seen.migration)
    if not began:
        return None
    found = (liveness.verdict(each, seen.evidence) for each in seen.evidence.absent)
    return next((each for each in found if isinstance(each, Unknown)), None)


def _wait_out(seen: Observed) -> tuple[Action, ...]:
    is_new = migration_attempts.number_of(seen.migration) and migration_attempts.failure_of(seen.migration) is None
    if is_new and not departure.is_released(seen.migration) and (ended := _target_ended(seen)) is not None:
        return ended  # so that the source can report that the guest stayed
    pod, node = dig_migration(seen.migration, "status", "targetPod"), dig_migration(seen.migration, "status", "targetNode")
    message = (
        f"target pod {pod} was deleted, but it is not certain that its containers ended: the guest may "
        f"still run in it until the kubelet of node {node} "
        "ends it; the migration continues when that is certain"
    )
    return _bound(seen, message)


def _bound(seen: Observed, waits_for: str = "") -> tuple[Action, ...]:
    phase = phases.phase_of(seen.migration)
    if phase == phases.TARGET_READY and not departure.is_released(seen.migration):
        left = migration_bounds.begin_left(seen.migration, seen.now)
        if left is not None and left <= 0:
            # The virt-handler writes Running before it begins, so one of the two writes conflicts.
            message = (
                f"virt-handler of node {dig_migration(seen.migration, 'status', 'sourceNode')} did not start the "
                "migration in time after the target was ready"
            )
            ended = (phases.CANCELLED, "Cancelled") if is_deleting(seen.migration) else (phases.FAILED, "SourceNotReady")
            return _finish(seen, *ended, message)
    else:
        left = migration_bounds.place_left(seen.migration, seen.now)
        if left is not None and left <= 0:
            # The target may have the only copy of the guest, so a user must delete it.
            message = (
                "neither node has reported the result long after the time limit; the migration stays unfinished, but "
                "no longer counts against the limits. If the guest is lost, delete the virtual machine"
            )
            return _report(seen, phase, OVERDUE, message)
    again = () if left is None else (_again(left),)
    if (said := _report_lost(seen)) is not None:
        return (*said, *again)
    if waits_for:
        return (*_report(seen, phase, absences.TARGET_MAY_RUN, waits_for), *again)
    if is_deleting(seen.migration):
        return (*_report(seen, phase, "Cancelling", "waiting for virt-handler of the source node to stop the migration"), *again)
    return again


def _report_lost(seen: Observed) -> tuple[Action, ...] | None:
    """Return actions that report that the machine's node is unreachable, or reachable again; None if there is nothing to report."""
    phase, conditions = phases.phase_of(seen.migration), dig_migration(seen.migration, "status", "conditions")
    if phases.phase_of(seen.vm or {}) == phases.UNKNOWN:
        node = dig_migration(seen.migration, "status", "sourceNode")
        return _report(seen, phase, SOURCE_UNKNOWN, f"node {node} does not report, so the state of the migration is unknown")
    if (condition(conditions, SUCCEEDED) or {}).get("reason") != SOURCE_UNKNOWN:
        return None
    return (WriteStatus({**_status(seen), "message": "", "conditions": without_condition(conditions, SUCCEEDED)}),)


def _source_ended(seen: Observed) -> tuple[Action, ...]:
    """Return actions after the source pod ended: release the guest if the pod says that it migrated, else wait and then fail."""
    name = dig_migration(seen.migration, "status", "sourcePod")
    how = _how_it_ended(seen.source, seen.evidence)
    if how.startswith(pod_state.MIGRATED):
        status = departure.released(seen.migration, departure.BY_POD, f"source pod {name} ended: {how}", seen.now)
        return (WriteStatus(status),)
    message = f"source pod {name} ended: {how}"
    withheld = condition(dig_migration(seen.migration, "status", "conditions"), departure.RELEASED)
    if withheld is None:
        return (WriteStatus(departure.withheld(seen.migration, message, seen.now)), Requeue(LAST_WORDS_SECONDS))
    left = LAST_WORDS_SECONDS - ago(withheld["lastTransitionTime"], seen.now)
    if left > 0:
        return (_again(left, LAST_WORDS_SECONDS),)
    return _finish(seen, phases.FAILED, "SourcePodEnded", message)


def _how_it_ended(pod: Object | None, evidence: liveness.Evidence) -> str:
    if pod is None:
        return "it was deleted"
    if liveness.verdict(pod, evidence) == liveness.FENCED:
        return f"node {pod_state.node_of(pod)} is off, as a person states"
    return pod_state.end_of(pod).message


def _target_ended(seen: Observed) -> tuple[Action, ...] | None:
    may_run = liveness.may_run(seen.target, seen.evidence)
    if seen.target is not None and may_run and not is_deleting(seen.target):
        return None
    name = dig_migration(seen.migration, "status", "targetPod")
    if may_run:
        if phases.phase_of(seen.migration) not in _OURS:
            return None
        return _fail_attempt(seen, migration_attempts.TARGET_POD_DELETED, f"target pod {name} is being deleted")
    how = _how_it_ended(seen.target, seen.evidence)
    return _fail_attempt(seen, migration_attempts.TARGET_POD_ENDED, f"target pod {name} ended: {how}")


def _fail_attempt(seen: Observed, reason: str, message: str) -> tuple[Action, ...]:
    """Return actions that record a failed attempt and retry, or end the Migration.

    Before ``Running`` the guest certainly stayed. In ``Running``, they first await the report of the source's virt-handler that it stayed,
    for ``SOURCE_WORD_SECONDS``; if the guest was released, they fail the Migration at once.
    """
    phase, failure = phases.phase_of(seen.migration), migration_attempts.failure_of(seen.migration)
    does_not_fit = phase == phases.SCHEDULING and not pod_state.lacked_devices(seen.target)
    if not migration_attempts.number_of(seen.migration) or does_not_fit or departure.is_released(seen.migration):
        return _finish(seen, phases.FAILED, reason, message)
    if failure is None:
        stored = dig_migration(seen.migration, "status", "targetNode")
        node = pod_state.node_of(seen.target) or stored
        attempt = {**seen.migration, "status": {**_status(seen), "targetNode": node}}
        status = {**_status(seen), "attempts": migration_attempts.failed(attempt, reason, message, seen.now)}
        if phase == phases.RUNNING:
            return (WriteStatus({**status, "message": message}), Requeue(SOURCE_WORD_SECONDS))
        return _retry(replace(seen, migration={**seen.migration, "status": status}))
    left = SOURCE_WORD_SECONDS - (ago(failure["endTime"], seen.now) if failure.get("endTime") else SOURCE_WORD_SECONDS)
    return (_again(left),) if left > 0 else _finish(seen, phases.FAILED, reason, message)


def _has_failed(seen: Observed) -> bool:
    if departure.is_released(seen.migration) or migration_attempts.failure_of(seen.migration) is None:
        return False
    return phases.phase_of(seen.migration) == phases.TARGET_READY or migration_attempts.is_reported(seen.migration)


def _retry(seen: Observed) -> tuple[Action, ...]:
    failure = migration_attempts.failure_of(seen.migration) or {}
    if is_deleting(seen.migration):
        return _finish(
            seen, phases.CANCELLED, "Cancelled", f"deleted after a failed attempt: {failure.get('message') or 'no reason given'}"
        )
    if (why := _impossible(seen)) is not None:
        return _finish(seen, phases.FAILED, *why)
    match migration_retries.step(seen.migration, seen.target, seen.now, seen.settings.times.back_off, seen.evidence):
        case migration_retries.GiveUp(reason, message):
            return _finish(seen, phases.FAILED, reason, message)
        case migration_retries.AwaitEnd(message, seconds, pod):
            status = {**_status(seen), "message": message}
            told = (WriteStatus(status),) if status != seen.migration.get("status") else ()
            deletion = (DeletePod(name_of(pod), uid_of(pod), migration_retries.GRACE_SECONDS),) if pod is not None else ()
            return (*told, *deletion, _again(seconds))
        case migration_retries.Retry(status, message):
            again = replace(seen, migration={**seen.migration, "status": status})
            written = WriteStatus({**status, "conditions": _conditions(again, "Unknown", ATTEMPT_FAILED, message)})
            return (written, Emit("Warning", ATTEMPT_FAILED, message), _again(_back_off_left(seen, again.migration)))


def _back_off_left(seen: Observed, migration: Object) -> float:
    return migration_retries.back_off_left(migration, seen.now, seen.settings.times.back_off)


def _tidy_up(seen: Observed) -> tuple[Action, ...]:
    if names.MIGRATION_FINALIZER not in finalizers_of(seen.migration):
        return ()
    return (*_conclude(seen), *_clean_up(seen))


def _conclude(seen: Observed) -> tuple[Action, ...]:
    phase, stored = phases.phase_of(seen.migration), condition(dig_migration(seen.migration, "status", "conditions"), SUCCEEDED) or {}
    outcome = "True" if phase == phases.SUCCEEDED else "False"
    if stored.get("status") == outcome:
        return ()
    message = str(dig_migration(seen.migration, "status", "message") or "")
    return (WriteStatus({**_status(seen), "conditions": _conditions(seen, outcome, phase, message)}),)


def _clean_up(seen: Observed) -> tuple[Action, ...]:
    held = dig_vm(seen.vm, "status", "podName")
    # A failed pass may have created the pod without recording its name.
    sides = (dig_migration(seen.migration, "status", "sourcePod"), ownership.target_name(seen.migration))
    moved = phases.phase_of(seen.migration) == phases.SUCCEEDED
    if seen.vm is not None and moved and held == sides[0]:
        # This copy is outdated: virt-handler moves the machine before it writes Succeeded.
        return (Requeue(STALE_SECONDS),)
    if seen.vm is not None and held not in sides:  # the machine has another run: the phase shows which pod was this run's
        held = sides[1] if moved else sides[0]
    losers = [pod for pod in (seen.source, seen.target) if pod is not None and name_of(pod) in sides and name_of(pod) != held]
    if (again := _source_ends(seen, losers)) is not None:
        return (again,)
    deletions = tuple(DeletePod(name_of(pod), uid_of(pod)) for pod in losers if not is_deleting(pod))
    return (*deletions, RemoveFinalizer(names.MIGRATION_FINALIZER))


def _source_ends(seen: Observed, losers: list[Object]) -> Requeue | None:
    """Return a Requeue while the source's virt-launcher may still take time to end after a success; None if not, or not in ``losers``.

    ``losers``: pods of the migration's sides that no longer have the guest.
    """
    if phases.phase_of(seen.migration) != phases.SUCCEEDED or seen.source not in losers or not liveness.may_run(seen.source, seen.evidence):
        return None
    ended = dig_migration(seen.migration, "status", "endTime")
    left = SOURCE_END_SECONDS - (ago(ended, seen.now) if ended else SOURCE_END_SECONDS)
    return _again(left, SOURCE_END_SECONDS) if left > 0 else None


def _again(seconds: float, at_most: float = math.inf) -> Requeue:
    return Requeue(min(max(seconds, MIN_REQUEUE_SECONDS), at_most))


def _handlers_turn(seen: Observed) -> timedelta:
    """Return the time left for the target's virt-handler to write the end; zero if the machine's status lacks it, or clocks differ."""
    record, turn = dig_vm(seen.vm, "status", "migration") or {}, timedelta(seconds=HANDLER_SECONDS)
    if record.get("uid") != uid_of(seen.migration):
        return timedelta()
    ended = times.parsed(record.get("endTime"))
    return turn - (seen.now - ended) if ended is not None and abs(seen.now - ended) < turn else timedelta()


def _finish(seen: Observed, phase: str, reason: str, message: str) -> tuple[Action, ...]:
    status = {
        **phases.enter(_status(seen), phase, seen.now),
        "endTime": times.to_rfc3339(seen.now),
        "message": message,
        "conditions": _conditions(seen, "True" if phase == phases.SUCCEEDED else "False", reason, message),
    }
    is_fault = phase == phases.FAILED and not (reason in _BY_STOP and _is_stopped(seen.migration, seen.vm))
    return (WriteStatus(status), Emit("Warning" if is_fault else "Normal", phase, message))


def _report(seen: Observed, phase: str, reason: str, message: str, **fields: str) -> tuple[Action, ...]:
    status = {
        **phases.enter(_status(seen), phase, seen.now),
        **fields,
        "message": message,
        "conditions": _conditions(seen, "Unknown", reason, message),
    }
    if status == (seen.migration.get("status") or {}):
        return ()
    return (WriteStatus(status), Emit("Warning", reason, message))


def _conditions(seen: Observed, status: str, reason: str, message: str) -> list[Object]:
    new = new_condition(seen.migration, SUCCEEDED, status, reason, message)
    return with_condition(dig_migration(seen.migration, "status", "conditions"), new, now=times.to_rfc3339(seen.now))


def _entered(seen: Observed, phase: str) -> datetime:
    stamps = dig_migration(seen.migration, "status", "phaseTransitionTimestamps") or []
    found = [each["time"] for each in stamps if each.get("phase") == phase]
    return times.parse(found[-1]) if found else seen.now


def _without_obstacle(seen: Observed) -> Object:
    status = _status(seen)
    if condition(status.get("conditions"), SUCCEEDED) is None:
        return status
    return {**status, "conditions": without_condition(status["conditions"], SUCCEEDED)}


def _status(seen: Observed) -> Object:
    return {**(seen.migration.get("status") or {}), "observedGeneration": generation_of(seen.migration)}
