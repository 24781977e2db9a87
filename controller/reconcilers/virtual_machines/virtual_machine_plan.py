"""Decide about one virtual machine: from what is known to a tuple of actions. Pure.

The phases up to ``Scheduled`` and from the end of the pod on are decided here; in between virt-handler of the node decides, and the plan
only watches over the pod. The rules, in order:

1. *Never two.* While any pod of the machine may still run something, no other is made, whoever made it and whatever it is for. Which pods
   are the machine's says :mod:`controller.reconcilers.pods.ownership`; a guest goes only into the one whose uid the status names. What was
   deleted by force may run for its grace period: the machine's own pod, and the target of a migration that is under way.
2. A machine that should be off has no pods: deleting a pod is what asks the guest to shut down, with the machine's own grace period.
3. When the last pod is over and virt-handler did not say how the guest ended, the pod's own end says it.
4. A machine that should be on gets the pod of its next attempt, as soon as its claims are there.

A node that does not report ends no attempt. What is said of it depends on who is silent: with virt-handler gone too the phase is
``Unknown``; as long as virt-handler lives, what it writes of its guests is not contradicted.
"""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import (
    Object,
    condition,
    dig,
    finalizers_of,
    generation_of,
    is_deleting,
    name_of,
    new_condition,
    uid_of,
    with_condition,
    with_conditions_judged,
    without_condition,
)
from apiserver.apis.virt.lifecycle import conditions, phases, power, summary
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import attachments, chosen_cpu
from controller.reconcilers import disk_claims
from controller.reconcilers.actions import (
    MIN_REQUEUE_SECONDS,
    Action,
    AddFinalizer,
    CreatePod,
    DeletePod,
    Emit,
    RemoveFinalizer,
    Requeue,
    WriteStatus,
)
from controller.reconcilers.launcher_pods import cpu, launcher_pod, scheduling
from controller.reconcilers.nodes import baseline_cpu
from controller.reconcilers.pods import absences, mounted_sources, networks, ownership, pod_state, sandboxes
from controller.reconcilers.virtual_machines import (
    attempts,
    disruptions,
    migration_record,
    outdated,
    silent_nodes,
    statuses,
)
from controller.reconcilers.virtual_machines.observed import AbsentTarget, Observed, own_pod

POD_END_SECONDS: Final = 30.0
"""A pod may live this long after its guest."""
QUICK_SECONDS: Final = 1
"""The grace period of a pod without a guest."""
MAX_STRANGERS: Final = 3
"""Nodes whose virt-handlers speak another contract, that are named."""
_NOT_OF_AN_END: Final = power.OFF_REASONS | {*silent_nodes.REASONS, summary.BACK_OFF, absences.TARGET_MAY_RUN}
"""Reasons of Ready=False that do not tell how an attempt ended: another judgement of the same machine takes their place."""


def plan(seen: Observed) -> tuple[Action, ...]:
    """Return what brings the machine closer to what it should be."""
    actions = disruptions.report(seen) or outdated.over(seen) or _decide(seen)
    return (
        *_hold(seen),
        *actions,
        *_record_migration(seen, actions),
        *disruptions.until_settled(seen),
        *silent_nodes.until_silent(seen),
    )


def _hold(seen: Observed) -> tuple[Action, ...]:
    """Put the finalizer back that somebody took off: a deletion would be over before the guest is, and nobody would wait for it."""
    held = is_deleting(seen.vm) or names.VM_FINALIZER in finalizers_of(seen.vm)
    return () if held else (AddFinalizer(names.VM_FINALIZER),)


def _record_migration(seen: Observed, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Say in the status how far the migration is. A stop goes first: no other write waits for this one."""
    if any(isinstance(each, WriteStatus | RemoveFinalizer) for each in actions):
        return ()
    record = migration_record.record(seen.vm, seen.migrations, seen.now)
    return () if record == dig(seen.vm, "status", "migration") else (WriteStatus({**statuses.status_of(seen), "migration": record}),)


def _decide(seen: Observed) -> tuple[Action, ...]:
    decision = power.decide(seen.vm)
    alive = tuple(pod for pod in seen.pods if not pod_state.is_over(pod))
    if not alive and (wait := _wait_out(seen, decision)):
        return wait
    if decision.reason == "Deleting":
        return _delete(seen, alive)
    current = power.current_attempt(seen.vm)
    if alive:
        if decision.on and not attempts.is_open(seen.vm) and _is_only_the_next(seen.vm, alive, decision.attempt):
            # Made by a pass that did not live to write it down, or not by us.
            return _wait_out(seen, decision) or _begin(seen, decision)
        if not decision.on or (attempts.is_open(seen.vm) and (decision.attempt > current or _is_to_end(seen))):
            return _stop(seen, alive)
        return _watch_over(seen, alive) if attempts.is_open(seen.vm) else _let_end(seen, alive)
    if attempts.is_open(seen.vm):
        return _record_end(seen, decision)
    if decision.on:
        return _start(seen, decision)
    return (*_clean_up(seen), *_rest(seen, decision))


def _is_to_end(seen: Observed) -> bool:
    """True if the newest attempt has no way back: it was asked to stop, or the spec was mended before there was a guest."""
    return attempts.is_stopped(seen.vm) or attempts.is_outdated(seen.vm, own_pod(seen, seen.pods))


def _delete(seen: Observed, alive: tuple[Object, ...]) -> tuple[Action, ...]:
    if alive:
        return (*_end_all(seen, alive), *silent_nodes.wait_for(seen, alive))
    if names.VM_FINALIZER not in finalizers_of(seen.vm):
        return ()
    # Pods that are over go with the machine: the garbage collector follows their owner.
    return (*_delete_all(seen.pods), RemoveFinalizer(names.VM_FINALIZER))


def _stop(seen: Observed, alive: tuple[Object, ...]) -> tuple[Action, ...]:
    """End the attempt, and remember that it was asked to end: it may be asked for otherwise before its pods are over."""
    if not attempts.is_open(seen.vm) or attempts.is_stopped(seen.vm):
        return (*_end_all(seen, alive), *silent_nodes.wait_for(seen, alive))
    stopped = attempts.changed(seen.vm, power.current_attempt(seen.vm), {"stopTime": times.to_rfc3339(seen.now)})
    return (WriteStatus({**statuses.status_of(seen), "attempts": stopped}), *_end_all(seen, alive))


def _end_all(seen: Observed, pods: tuple[Object, ...]) -> tuple[Action, ...]:
    """Delete pods with the time that their guests need; one that was not handed over has no guest, and nothing in it to wait for.

    It is not handed over any more, either: the attempt is marked, or the machine is being deleted, and whoever looked at it before that
    writes in vain. The object of the pod stays until its node has seen the container end, as with every grace period but 0.
    """
    empty = _without_guest(seen)
    return tuple(DeletePod(each.name, each.uid, QUICK_SECONDS if each.name == empty else None) for each in _delete_all(pods))


def _without_guest(seen: Observed) -> str:
    """Return the name of the pod that was made and not handed over; the one of the next attempt may have been made and not written down."""
    if phases.phase_of(seen.vm) == phases.SCHEDULING:
        return name_of(own_pod(seen, seen.pods) or {})
    return (
        "" if attempts.is_open(seen.vm) else names.launcher_pod_name(name_of(seen.vm), uid_of(seen.vm), power.current_attempt(seen.vm) + 1)
    )


def _delete_all(pods: tuple[Object, ...]) -> tuple[DeletePod, ...]:
    return tuple(DeletePod(name_of(pod), uid_of(pod)) for pod in pods if not is_deleting(pod))


def _watch_over(seen: Observed, alive: tuple[Object, ...]) -> tuple[Action, ...]:
    """The current attempt goes on: hand it to virt-handler when it runs, say what is in its way, notice a lost node."""
    phase, pod = phases.phase_of(seen.vm), own_pod(seen, alive)
    if pod is None:
        return _without_own_pod(seen, alive)
    if pod_state.node_of(pod) in seen.silence.whole or is_deleting(pod):
        return silent_nodes.wait_for(seen, alive)  # deleted by somebody else: what follows is decided when it is over
    if phase in (phases.SCHEDULED, phases.RUNNING, phases.STOPPING, phases.UNKNOWN):
        return _limit_start(seen, pod) if phase == phases.SCHEDULED else _follow(seen)
    if pod_state.is_running(pod):
        return _hand_over(seen, pod)
    if pod_state.node_of(pod) in seen.silence.of_kubelet:
        return silent_nodes.wait_for(seen, alive)
    return _report_obstacle(seen, pod)


def _follow(seen: Observed) -> tuple[Action, ...]:
    """The guest moved: the attempt says where to; a condition says that the pod is outdated."""
    old = statuses.status_of(seen)
    status = dict(old)
    place = {key: str(old.get(key) or "") for key in ("nodeName", "podName")}
    newest = power.newest_attempt(seen.vm)
    if newest and all(place.values()) and not all(newest.get(key) == value for key, value in place.items()):
        status["attempts"] = attempts.changed(seen.vm, power.current_attempt(seen.vm), place)
    status = outdated.marked(seen, status)
    return (WriteStatus(status),) if status != old else ()


def _without_own_pod(seen: Observed, alive: tuple[Object, ...]) -> tuple[Action, ...]:
    """The attempt's own pod is over. Targets of Migrations are the other loop's to end; what else claims to be the machine's just goes."""
    return (*_delete_all(tuple(pod for pod in alive if name_of(pod) not in seen.targets)), *silent_nodes.wait_for(seen, alive))


def is_handled(vm: Object) -> bool:
    """True if a guest may run in the pod that the status names, and virt-handler of its node is the one to write how it ends."""
    return attempts.is_open(vm) and phases.phase_of(vm) in phases.HANDLED


def may_have_arrived(migration: Object, vm: Object, pods: tuple[Object, ...]) -> bool:
    """True if the guest may be in the target of an unfinished Migration: bytes may have gone there, or the source says that it left.

    The copy of the Migration may be older than what the pods say, which are watched apart.
    """
    if not phases.is_unfinished(migration):
        return False
    source = ownership.source_of(migration, vm)
    left = any(source is not None and ownership.is_meant(pod, source, vm) and _has_migrated(pod) for pod in pods)
    return left or phases.phase_of(migration) not in ("", phases.PENDING, phases.SCHEDULING)


def _has_migrated(pod: Object) -> bool:
    return pod_state.end_of(pod).message.startswith(pod_state.MIGRATED)


def _wait_out(seen: Observed, decision: power.Power) -> tuple[Action, ...]:
    """A pod that was deleted by force still has containers until its kubelet ended them. virt-handler writes the end when it sees it.

    Of a migration's target it cannot, before it has taken the machine: the guest that arrived there has its time whatever the source's pod
    says. It keeps nothing from resting that is off.
    """
    left = 0.0
    if is_handled(seen.vm) and own_pod(seen, seen.pods) is None:
        left = seen.silence.left(dig(seen.vm, "status", "nodeName") or "", seen.lingers)
    told: tuple[Action, ...] = ()
    if attempts.is_open(seen.vm) or decision.on or decision.reason == "Deleting":
        waits = [(seen.silence.left(each.node, each.lingers), each) for each in seen.absent_targets]
        if (longest := max(waits, key=lambda each: each[0], default=None)) is not None and longest[0]:
            left, told = max(left, longest[0]), _report_absent_target(seen, longest[1])
    return (*told, Requeue(max(left, MIN_REQUEUE_SECONDS))) if left else ()


def _report_absent_target(seen: Observed, target: AbsentTarget) -> tuple[Action, ...]:
    known = condition(dig(seen.vm, "status", "conditions"), conditions.READY) or {}
    if known.get("reason") in (conditions.START_TIMEOUT, conditions.LIVENESS_FAILED):
        return ()  # by which the end is told
    message = (
        f"target pod {target.pod} of migration {target.migration} is gone and was not seen to end: the guest may run in it until the "
        f"kubelet of {f'node {target.node}' if target.node else 'its node'} has ended it; nothing else is started before its time is over"
    )
    return statuses.report(seen, "Unknown", absences.TARGET_MAY_RUN, message, warn=True)


def _let_end(seen: Observed, alive: tuple[Object, ...]) -> tuple[Action, ...]:
    """The guest ended by itself and its pod follows by itself, log and all; only one that hangs is deleted."""
    left = POD_END_SECONDS - seen.rested
    if left > 0 and dig(seen.vm, "status", "attempts"):
        return (*silent_nodes.wait_for(seen, alive), Requeue(max(left, MIN_REQUEUE_SECONDS)))
    return (*_delete_all(alive), *silent_nodes.wait_for(seen, alive))


def _hand_over(seen: Observed, pod: Object) -> tuple[Action, ...]:
    # Others began in the same moment, and were handed over first; and which node it is, is known now alone.
    if seen.claims_in_use or seen.servers_in_use or seen.files_in_use:
        status = {**statuses.status_of(seen), "conditions": _disks_lacking(seen, conditions.DISK_IN_USE, _in_use(seen))}
        return statuses.write(seen, status, Emit("Warning", conditions.DISK_IN_USE, _in_use(seen)))
    node = pod_state.node_of(pod)
    found = statuses.ready(seen, "False", "GuestNotStarted", f"the pod runs on {node}; virt-handler starts the guest")
    if conditions.waits_for_source(seen.vm) or conditions.waits_for_claim(seen.vm) or conditions.waits_for_volume(seen.vm):
        found = with_condition(found, _disks_ready(seen), now=times.to_rfc3339(seen.now))
    if conditions.waits_for_network(seen.vm):
        found = without_condition(found, conditions.NETWORK_READY)
    status = {
        **phases.enter(statuses.status_of(seen), phases.SCHEDULED, seen.now),
        "nodeName": node,
        "podName": name_of(pod),
        "podUID": uid_of(pod),
        "podIP": next(iter(pod_state.addresses_of(pod)), ""),
        "conditions": found,
        "attempts": attempts.changed(seen.vm, power.current_attempt(seen.vm), {"nodeName": node}),
        "observedGeneration": generation_of(seen.vm),
    }
    told = power.newest_attempt(seen.vm).get("nodeName") == node  # and somebody edited the status since
    event = () if told else (Emit("Normal", "Scheduled", f"pod {name_of(pod)} runs on node {node}"),)
    return (WriteStatus(status), *event, Requeue(attempts.start_seconds(seen.vm)))


def _report_obstacle(seen: Observed, pod: Object) -> tuple[Action, ...]:
    found = pod_state.obstacle(pod)
    unbound = _unbound(seen, pod)
    if conditions.waits_for_volume(seen.vm) and not unbound:
        changed = with_condition(statuses.status_of(seen).get("conditions"), _disks_ready(seen), now=times.to_rfc3339(seen.now))
        return (WriteStatus({**statuses.status_of(seen), "conditions": changed}), Requeue(MIN_REQUEUE_SECONDS))
    if found is None and (told := networks.fault(seen.networks)):
        return _wait_for_networks(seen, phases.SCHEDULING, told)
    if found is None:
        return _report_sources_came(seen, pod) or _wait_for_sandbox(seen, pod) or _wait_for_sources(seen, pod) or _report_slow(seen, pod)
    reason, message = found
    chosen = chosen_cpu.chosen(seen.vm)
    demands = cpu.demands(seen.vm, chosen) if pod_state.is_unschedulable(pod) and pod_state.has_kvm(pod) else ""
    foreign = "; ".join(sorted(seen.strangers.values())[:MAX_STRANGERS]) if pod_state.is_unschedulable(pod) else ""
    text = "; ".join(filter(None, (f"pod {name_of(pod)}: {message}", demands, unbound, foreign)))
    status = _without_lack(seen, pod, statuses.ready(seen, "False", reason, text))
    if unbound:
        lacking = new_condition(seen.vm, conditions.DISKS_READY, "False", conditions.CLAIM_NOT_BOUND, unbound)
        status["conditions"] = with_condition(status["conditions"], lacking, now=times.to_rfc3339(seen.now))
    return statuses.write(seen, status, Emit("Warning", reason, text))


def _unbound(seen: Observed, pod: Object) -> str:
    """Return which claims have no volume, once no node takes the pod: many classes of storage make volumes only when a node is chosen."""
    found = disk_claims.unbound(seen.vm, seen.claims) if pod_state.is_unschedulable(pod) else ()
    return one_line(f"PersistentVolumeClaim not bound: {', '.join(found)}", pod_state.MAX_MESSAGE) if found else ""


def _without_lack(seen: Observed, pod: Object, found: list[Object]) -> Object:
    """Return the status with these conditions; what a pod has mounted is not missing any more, whatever else is in its way."""
    if conditions.waits_for_source(seen.vm) and pod_state.has_volumes(pod):
        found = with_condition(found, _disks_ready(seen), now=times.to_rfc3339(seen.now))
    return {**statuses.status_of(seen), "conditions": found}


def _without_network_lack(seen: Observed, message: str) -> Object:
    found = without_condition(statuses.ready(seen, "False", "PodNotRunning", message), conditions.NETWORK_READY)
    return {**statuses.status_of(seen), "conditions": found}


def _report_sources_came(seen: Observed, pod: Object) -> tuple[Action, ...]:
    if not conditions.waits_for_source(seen.vm) or not pod_state.has_volumes(pod):
        return ()
    message = f"pod {name_of(pod)} has its volumes; its container is being made"
    status = _without_lack(seen, pod, statuses.ready(seen, "False", "PodNotRunning", message))
    return (*statuses.write(seen, status), Requeue(pod_state.SLOW_SECONDS))


def _wait_for_sources(seen: Observed, pod: Object) -> tuple[Action, ...]:
    """Say which Secret or ConfigMap is missing; until the kubelet says so, look at what it says."""
    again = mounted_sources.requeue_seconds(seen.vm, pod, seen.now)
    if again is None:
        return ()
    if (lacking := mounted_sources.fault(seen.vm, seen.mount_events)) is None:
        return (*_report_slow(seen, pod), Requeue(again))
    status = {**statuses.status_of(seen), "conditions": _disks_lacking(seen, *lacking)}
    return (*statuses.write(seen, status, Emit("Warning", *lacking)), Requeue(again))


def _wait_for_sandbox(seen: Observed, pod: Object) -> tuple[Action, ...]:
    """Say which network the node's plugins refuse to the pod; that it has its volumes by then, too."""
    told = sandboxes.fault(seen.networks.definitions, pod_state.node_of(pod), seen.sandbox_events, seen.mount_events)
    if told is None:
        return ()
    return _wait_for_networks(seen, phases.SCHEDULING, told, *((_disks_ready(seen),) if conditions.waits_for_source(seen.vm) else ()))


def _wait_for_networks(seen: Observed, phase: str, told: tuple[str, str], *others: Object) -> tuple[Action, ...]:
    """Say (reason, message) of a network, before there is a pod or while the kubelet tries to make its sandbox, and requeue."""
    lacking = new_condition(seen.vm, conditions.NETWORK_READY, "False", *told)
    status = {
        **phases.enter(statuses.status_of(seen), phase, seen.now),
        "conditions": statuses.ready(seen, "False", *told),
        "observedGeneration": generation_of(seen.vm),
    }
    for each in (lacking, *others):
        status["conditions"] = with_condition(status["conditions"], each, now=times.to_rfc3339(seen.now))
    return (*statuses.write(seen, status, Emit("Warning", *told)), Requeue(seen.settings.times.networks))


def _report_slow(seen: Observed, pod: Object) -> tuple[Action, ...]:
    """A volume that cannot be attached, a network that cannot be joined, a large image: only the kubelet's Events say which."""
    bound_at = pod_state.bound_at(pod)
    if bound_at is None:
        return ()
    if conditions.waits_for_network(seen.vm):
        message = f"pod {name_of(pod)} has its networks; its container is being made"
        return (*statuses.write(seen, _without_network_lack(seen, message)), Requeue(seen.settings.times.networks))
    left = (times.parse(bound_at) - seen.now).total_seconds() + pod_state.SLOW_SECONDS
    if left > 0:
        most = seen.settings.times.networks if attachments.of(seen.vm) else pod_state.SLOW_SECONDS
        return (Requeue(min(max(left, MIN_REQUEUE_SECONDS), most)),)
    return statuses.report(seen, "False", pod_state.CREATING, pod_state.slow_words(pod), warn=True)


def _limit_start(seen: Observed, pod: Object) -> tuple[Action, ...]:
    """An attempt whose guest does not run in time has failed: end its pod, so that another node gets a chance."""
    left = attempts.start_left(seen.vm, pod, seen.now)
    if left is None:
        return ()
    if left > timedelta():
        return (Requeue(max(left.total_seconds(), MIN_REQUEUE_SECONDS)),)
    message = f"the guest did not run within {attempts.start_seconds(seen.vm)} s on node {pod_state.node_of(pod)}"
    return (*statuses.report(seen, "False", conditions.START_TIMEOUT, message, warn=True), DeletePod(name_of(pod), uid_of(pod)))


def _record_end(seen: Observed, decision: power.Power) -> tuple[Action, ...]:
    """The last pod is over and nobody wrote how: virt-handler was away, or the guest never came to it."""
    current = power.current_attempt(seen.vm)
    result, message = _result(seen, decision, current)
    message = disruptions.added(seen, message)
    end = {"endTime": times.to_rfc3339(seen.now), "result": result, "message": message}
    if (last := _last_pod(seen)) is not None and pod_state.has_run(last):  # it may have ended before it was seen to run
        end["nodeName"] = pod_state.node_of(last)
    status = {
        **phases.enter(statuses.status_of(seen), power.PHASES[result], seen.now),
        "conditions": statuses.ready(seen, "False", f"Attempt{result}", message),
        "attempts": attempts.changed(seen.vm, current, end),
        "observedGeneration": generation_of(seen.vm),
    }
    status = phases.without_guest(status)
    status["conditions"] = without_condition(status["conditions"], conditions.LAUNCHER_OUTDATED)
    warning = result == power.RESULT_FAILED
    return (WriteStatus(status), Emit("Warning" if warning else "Normal", result, message))


def _result(seen: Observed, decision: power.Power, current: int) -> tuple[str, str]:
    last = _last_pod(seen)
    if not decision.on or decision.attempt > current:
        return power.RESULT_STOPPED, decision.message
    if attempts.is_stopped(seen.vm):
        is_edited = attempts.is_outdated(seen.vm, last)
        return power.RESULT_STOPPED, "the spec was edited before the guest was started" if is_edited else "it was asked to stop"
    ready = condition(dig(seen.vm, "status", "conditions"), "Ready") or {}
    if ready.get("reason") in (conditions.START_TIMEOUT, conditions.LIVENESS_FAILED):
        return power.RESULT_FAILED, str(ready.get("message"))
    if last is None:
        return power.RESULT_FAILED, "the pod was deleted, not by virt-controller"
    end = pod_state.end_of(last)
    if is_deleting(last) and end.result != power.RESULT_FAILED:
        return power.RESULT_STOPPED, f"the pod was deleted, not by virt-controller ({end.message})"
    return end.result, end.message


def _last_pod(seen: Observed) -> Object | None:
    """Return the pod that the guest ended in: the machine's own, unless the guest moved out of it in its last moments."""
    own = own_pod(seen, seen.pods)
    if own is not None and _has_migrated(own):
        return next((pod for pod in seen.pods if pod is not own and name_of(pod) in seen.targets), own)
    return own


def _start(seen: Observed, decision: power.Power) -> tuple[Action, ...]:
    missing = disk_claims.missing(seen.vm, seen.claims)
    if missing:
        message = f"PersistentVolumeClaim not found: {', '.join(missing)}; the virtual machine starts when it exists"
        return _wait_for_disks(seen, conditions.CLAIM_NOT_FOUND, message)
    if going := disk_claims.going(seen.vm, seen.claims):
        message = (
            f"PersistentVolumeClaim is being deleted: {', '.join(going)}; the virtual machine starts when it is gone, which it is once "
            "nobody uses it, and there is another one of that name"
        )
        return _wait_for_disks(seen, conditions.CLAIM_BEING_DELETED, message)
    if claim := disk_claims.without_directory(seen.vm, seen.claims):
        message = f"PersistentVolumeClaim {claim} is a block device: spec.domain.firmware.persistentState needs volume mode Filesystem"
        return _wait_for_disks(seen, conditions.CLAIM_WITHOUT_FILES, message)
    if on_devices := disk_claims.filesystems_on_devices(seen.vm, seen.claims):
        named = one_line(", ".join(on_devices), pod_state.MAX_MESSAGE)
        message = f"PersistentVolumeClaim is a block device: {named}; spec.domain.devices.filesystems needs volume mode Filesystem"
        return _wait_for_disks(seen, conditions.CLAIM_WITHOUT_FILES, message)
    if without := disk_claims.luns_without_device(seen.vm, seen.claims):
        named = one_line(", ".join(without), pod_state.MAX_MESSAGE)
        message = f"PersistentVolumeClaim is no block device: {named}; device lun of a disk needs volume mode Block"
        return _wait_for_disks(seen, conditions.CLAIM_WITHOUT_DEVICE, message)
    if seen.claims_in_use or seen.servers_in_use:
        return _wait_for_disks(seen, conditions.DISK_IN_USE, _in_use(seen))
    if told := networks.fault(seen.networks):
        return _wait_for_networks(seen, phases.PENDING, told)
    if (foreign := seen.strangers.get(dig(seen.vm, "spec", "nodeName") or "")) is not None:
        return statuses.report(seen, "False", conditions.HANDLER_NOT_UNDERSTOOD, foreign, warn=True, phase=phases.PENDING)
    if dig(seen.vm, "spec", "nodeName") in seen.silence.missing:
        return silent_nodes.wait_for_node(seen)
    if pause := attempts.pause_before(decision, seen.rested):
        return (*_clean_up(seen), *_report_pause(seen, decision), Requeue(pause))
    name = names.launcher_pod_name(name_of(seen.vm), uid_of(seen.vm), decision.attempt)
    if namesakes := tuple(each for each in seen.pods if name_of(each) == name):  # over: the deletion makes room
        return (*_delete_all(namesakes), Requeue(MIN_REQUEUE_SECONDS))
    return (*_clean_up(seen), *_begin(seen, decision))


def _in_use(seen: Observed) -> str:
    claims, servers = ([f"{what} by virtual machine {other}" for what, other in each] for each in (seen.claims_in_use, seen.servers_in_use))
    kinds = (("PersistentVolumeClaim", claims), ("disk of a server", servers), ("file", seen.files_in_use))
    held = one_line("; ".join(f"{kind} in use: {', '.join(found)}" for kind, found in kinds if found), pod_state.MAX_MESSAGE)
    return f"{held}; the virtual machine starts when that is off"


def _report_pause(seen: Observed, decision: power.Power) -> tuple[Action, ...]:
    seconds, words = attempts.pause_seconds(decision), attempts.last_words(seen.vm)
    message = f"attempt {decision.attempt} begins {seconds:g} s after the one before it ended, which was: {words}"
    return statuses.report(seen, "False", summary.BACK_OFF, message, warn=True)


def _begin(seen: Observed, decision: power.Power) -> tuple[Action, ...]:
    """Make the pod of the wished attempt (the name is the lock: nobody can make a second) and write down which one it is."""
    if seen.refusal:
        return statuses.report(seen, "False", "FailedCreate", seen.refusal, warn=True, phase=phases.PENDING)
    kvm = seen.settings.wants_kvm(offered=seen.kvm_offered)
    placement = scheduling.Placement(kvm=kvm, avoid_nodes=_avoided(seen), never_on=tuple(sorted(seen.strangers)))
    choice = _choose_cpu(seen, placement)
    placement = dataclasses.replace(placement, chosen=choice.chosen if choice is not None else None)
    pod = launcher_pod.launcher_pod(seen.vm, decision.attempt, seen.claims, seen.settings, placement)
    return (CreatePod(pod, seen.vm), *_record_start(seen, pod, decision.attempt, choice))


def _avoided(seen: Observed) -> tuple[str, ...]:
    """Return the nodes that others are preferred to: starts failed there, or the kubelet rejected the last pod, which is none."""
    rejecting = (pod_state.node_of(pod) for pod in seen.pods if pod_state.lacked_devices(pod))
    return tuple(sorted({*attempts.failed_nodes(seen.vm), *rejecting}))


def _choose_cpu(seen: Observed, placement: scheduling.Placement) -> baseline_cpu.Choice | None:
    """Return which CPU the guest of this attempt has; None: the machine says it, or no node has a say in it."""
    if not placement.kvm or not chosen_cpu.is_to_choose(seen.vm):
        return None
    said = (str(each.get("name") or "") for each in dig(seen.vm, "spec", "domain", "cpu", "features") or ())
    nodes = [each for each in seen.nodes if name_of(each) not in placement.never_on]
    placement = dataclasses.replace(placement, never_on=())  # as many as an upgrade has nodes; what the machine asks has a bound
    return baseline_cpu.choose(nodes, scheduling.scheduling(seen.vm, placement), said)


def _is_only_the_next(vm: Object, alive: tuple[Object, ...], attempt: int) -> bool:
    """True if all that lives is one pod with the name of this attempt's."""
    return len(alive) == 1 and not is_deleting(alive[0]) and name_of(alive[0]) == names.launcher_pod_name(name_of(vm), uid_of(vm), attempt)


def _record_start(seen: Observed, pod: Object, attempt: int, choice: baseline_cpu.Choice | None) -> tuple[Action, ...]:
    now = times.to_rfc3339(seen.now)
    begun = {"number": attempt, "generation": generation_of(seen.vm), "podName": name_of(pod), "startTime": now}
    status = {
        **phases.enter(statuses.status_of(seen), phases.SCHEDULING, seen.now),
        "attempt": attempt,
        "podName": name_of(pod),
        "conditions": with_condition(
            statuses.ready(seen, "False", "PodNotRunning", f"pod {name_of(pod)} was created"), _disks_ready(seen), now=now
        ),
        "attempts": [*(dig(seen.vm, "status", "attempts") or []), begun][-power.MAX_ATTEMPTS_KEPT :],
        "observedGeneration": generation_of(seen.vm),
    }
    for kind in (conditions.DISRUPTION_TARGET, conditions.MIGRATABLE):
        status["conditions"] = without_condition(status["conditions"], kind)
    if barrier := disk_claims.not_migratable(seen.vm, seen.claims):
        told = new_condition(seen.vm, conditions.MIGRATABLE, "False", conditions.DISKS_NOT_SHARED, barrier)
        status["conditions"] = with_condition(status["conditions"], told, now=now)
    if conditions.waits_for_network(seen.vm):
        status["conditions"] = without_condition(status["conditions"], conditions.NETWORK_READY)
    for key in (*phases.OF_A_PLACE, "cpu"):  # of the attempt before
        status.pop(key, None)
    if choice is not None:
        status["cpu"] = choice.status()
    made = Emit("Normal", "SuccessfulCreate", f"created pod {name_of(pod)} for attempt {attempt}")
    return (WriteStatus(status, "podUID"), made, *_warn_of_namesakes(seen), *_warn_of_sizes(seen))


def _warn_of_namesakes(seen: Observed) -> tuple[Action, ...]:
    """Two guests with one MAC address do not disturb each other: each is alone on the bridge in its pod. What takes them for one does."""
    if not seen.namesakes:
        return ()
    others = one_line(", ".join(seen.namesakes), pod_state.MAX_MESSAGE)
    message = f"a MAC address of this machine is also one of {others}: the network does not mind, software that knows guests by it may"
    return (Emit("Warning", "DuplicateMAC", message),)


def _warn_of_sizes(seen: Observed) -> tuple[Action, ...]:
    """Much storage does not hold to the size of a claim: a larger disk works there until the storage, which others use, too, is full."""
    if not (found := disk_claims.too_small(seen.vm, seen.claims)):
        return ()
    message = f"{'; '.join(found)}: the guest may find its disk full before it is, or fill what others need"
    return (Emit("Warning", conditions.CLAIM_TOO_SMALL, one_line(message, pod_state.MAX_MESSAGE)),)


def _wait_for_disks(seen: Observed, reason: str, message: str) -> tuple[Action, ...]:
    status = {
        **phases.enter(statuses.status_of(seen), phases.PENDING, seen.now),
        "conditions": _disks_lacking(seen, reason, message),
        "observedGeneration": generation_of(seen.vm),
    }
    return statuses.write(seen, status, Emit("Warning", reason, message))


def _disks_lacking(seen: Observed, reason: str, message: str) -> list[Object]:
    """Return the conditions of a machine that waits for what its disks are made of."""
    lacking = new_condition(seen.vm, conditions.DISKS_READY, "False", reason, message)
    return with_condition(statuses.ready(seen, "False", conditions.DISKS_NOT_READY, message), lacking, now=times.to_rfc3339(seen.now))


def _rest(seen: Observed, decision: power.Power) -> tuple[Action, ...]:
    """Off, and it should be: keep the phase that the last attempt ended in, and the words for its end."""
    status = statuses.status_of(seen)
    ready = condition(status.get("conditions"), conditions.READY) or {}
    gives_up = ready.get("reason") == summary.BACK_OFF and decision.reason in power.ASKED_TO_BE_OFF
    if gives_up or phases.phase_of(seen.vm) not in phases.ENDED:
        status = phases.enter(status, phases.STOPPED, seen.now)
        status["conditions"] = statuses.ready(seen, "False", decision.reason, decision.message)
    elif ready.get("status") == "True" or ready.get("reason") in _NOT_OF_AN_END:
        status["conditions"] = statuses.ready(seen, "False", decision.reason, decision.message)
    if decision.reason in power.ASKED_TO_BE_OFF and power.was_interrupted(seen.vm) and own_pod(seen, seen.pods) is None:
        # What would say so again is gone. If it stayed, an edit of the strategy would start the machine, days later.
        status["conditions"] = without_condition(status["conditions"], conditions.DISRUPTION_TARGET)
    if (found := _at_rest(seen, decision, status.get("conditions") or [])) != (status.get("conditions") or []):
        status["conditions"] = found
    status = with_conditions_judged(seen.vm, status, (conditions.READY, conditions.STALLED, conditions.DISRUPTION_TARGET))
    status["observedGeneration"] = generation_of(seen.vm)
    told = Emit("Normal", power.RESULT_STOPPED, f"{decision.message}: no further attempt begins")
    return statuses.write(seen, status, *((told,) if gives_up else ()))


def _at_rest(seen: Observed, decision: power.Power, found: list[Object]) -> list[Object]:
    """Return the conditions by which others know whether a machine that is off is as its spec says: Helm, Flux, kstatus.

    They take Ready=False for "not yet", and Stalled=True for "never".
    """
    if power.is_off_by_its_spec(seen.vm, decision):
        return without_condition(without_condition(found, conditions.READY), conditions.STALLED)
    if not power.has_given_up(seen.vm, decision):
        return without_condition(found, conditions.STALLED)
    stalled = condition(dig(seen.vm, "status", "conditions"), conditions.STALLED)
    new = new_condition(seen.vm, conditions.STALLED, "True", decision.reason, f"{decision.message}: no further start begins by itself")
    now = str((stalled or {}).get("lastTransitionTime") or times.to_rfc3339(seen.now))
    return with_condition(found, new, now=now)


def _clean_up(seen: Observed) -> tuple[Action, ...]:
    """Delete pods that are over; the last one of a failed attempt stays until the next, because its log says why."""
    newest = (dig(seen.vm, "status", "attempts") or [{}])[-1]
    kept = newest.get("podName") if newest.get("result") == power.RESULT_FAILED else ""
    return _delete_all(tuple(pod for pod in seen.pods if pod_state.is_over(pod) and name_of(pod) != kept))


def _disks_ready(seen: Observed) -> Object:
    claims = disk_claims.claims_of(seen.vm)
    message = f"found {', '.join(claims)}" if claims else "no disk needs a claim"
    return new_condition(seen.vm, conditions.DISKS_READY, "True", conditions.DISKS_FOUND if claims else "NoClaims", message)
