"""The pods with claims for a running guest, and their records in ``status.volumeStatus``. Pure.

The record of a pod's uid locks the claim for the guest. So it is written once the pod runs and no other machine holds the claim
(``controller.reconcilers.precedence``) or has reserved it (``apis.virt.spec.reserved_claims``). If one does, the pod goes, because it would
keep the volume on its node. A pod stays while its disk is in the running form, and the guest in the pod for which it was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, is_deleting, name_of, uid_of
from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases
from apiserver.apis.virt.spec import hot_plug, pod_memory
from controller.reconcilers import disk_claims
from controller.reconcilers.actions import MIN_REQUEUE_SECONDS, Action, CreatePod, DeletePod, Emit, Requeue, WriteStatus
from controller.reconcilers.launcher_pods import launcher_pod
from controller.reconcilers.pods import liveness, pod_state
from controller.reconcilers.virtual_machines import pod_sizes, statuses
from controller.reconcilers.virtual_machines.observed import Observed

LOOK_SECONDS: Final = 5.0
"""No event may announce a claim that is missing or in use."""


class _Wait(NamedTuple):
    reason: str
    message: str


def plan(seen: Observed) -> tuple[Action, ...]:
    """Return actions that create, delete and record the pods of hot-plugged disks."""
    phase = phases.phase_of(seen.vm)
    if phase != phases.RUNNING:
        return () if phase in phases.WITH_GUEST else tuple(map(_delete, seen.attachment_pods))
    changes = hot_plug.changes_of(seen.vm)
    new = _by_pod(seen, (each for each in hot_plug.added(seen.vm) if hot_plug.is_supported(each, changes)))
    waits = {name: wait for name, disk in new.items() if (wait := _wait(seen, disk))}
    wanted = _by_pod(seen, (disk for disk, _ in hot_plug.attached(seen.vm))) | new
    there = {name_of(each): each for each in seen.attachment_pods}
    copied = {name for name, disk in new.items() if name not in waits and disks.is_overlaid(disk)}
    room = pod_sizes.room(seen, pod_memory.recorded(seen.vm)) if copied else pod_sizes.Room()
    small = dict.fromkeys(copied, _Wait(room.reason, room.message)) if room.reason else {}
    found = [_entry(seen, disk, there.get(name), waits.get(name) or small.get(name)) for name, disk in wanted.items()]
    missing = (_create(seen, disk) for name, disk in wanted.items() if name not in there and name not in waits)
    made = tuple(each for each in missing if each.request not in seen.refusals)
    kept = wanted.keys() - {name for name, wait in waits.items() if wait.reason == conditions.DISK_IN_USE}
    gone = (pod for name, pod in there.items() if name not in kept or not liveness.may_run(pod, seen.evidence))
    ends = (_delete(pod) for pod in gone if not is_deleting(pod))
    return (*room.actions, *made, *ends, *_write(seen, found), *_look(seen, waits))


def _by_pod(seen: Observed, found: Iterable[Object]) -> dict[str, Object]:
    return {hot_plug.pod_name(seen.vm, each): each for each in found}


def _wait(seen: Observed, disk: Object) -> _Wait | None:
    name = disks.claim_of(disk)
    if name and (wait := _wait_for_claim(seen, disk, name)):
        return wait
    if other := hot_plug.user_of_identity(seen.vm, disk):
        return _Wait(conditions.DISK_IN_USE, f"disk {other}, which the guest still has, has the same serial or World Wide Name")
    if under_way := next((each for each in seen.migrations if phases.is_unfinished(each)), None):
        return _Wait(hot_plug.MIGRATING, f"Migration {name_of(under_way)} must end first")
    refusal = seen.refusals.get(hot_plug.pod_name(seen.vm, disk))
    return None if refusal is None else _Wait("PodRefused", refusal)


def _wait_for_claim(seen: Observed, disk: Object, name: str) -> _Wait | None:
    claim = seen.claims.get(name)
    if claim is None:
        return _Wait(hot_plug.CLAIM_NOT_FOUND, f"PersistentVolumeClaim {name} does not exist")
    if is_deleting(claim):
        return _Wait(hot_plug.CLAIM_TERMINATING, f"PersistentVolumeClaim {name} is being deleted")
    if disk_claims.is_block(claim) and (disks.is_drive(disk) or hot_plug.BLOCK not in hot_plug.changes_of(seen.vm)):
        return _Wait(
            hot_plug.NEEDS_RESTART, f"PersistentVolumeClaim {name} has volumeMode Block, so the guest gets the disk at its next start"
        )
    if other := seen.wanted_in_use.get(name):
        return _Wait(conditions.DISK_IN_USE, f"PersistentVolumeClaim {name} is in use by virtual machine {other}")
    if own := hot_plug.user_of_claim(seen.vm, disk):
        return _Wait(conditions.DISK_IN_USE, f"PersistentVolumeClaim {name} is in use by disk {own} of this virtual machine")
    return None


def _entry(seen: Observed, disk: Object, pod: Object | None, wait: _Wait | None) -> Object:
    """Return a disk's entry in ``status.volumeStatus``. Without ``wait`` it keeps a pod until another one runs: the guest may have it."""
    claim = disks.claim_of(disk)
    entry: Object = {"name": disk["name"], **({"claimName": claim} if claim else {})}
    if wait is None and pod is not None and pod_state.is_running(pod) and not is_deleting(pod) and _is_with_guest(seen, pod):
        volume = {"attachPodName": name_of(pod), "attachPodUID": uid_of(pod)}
        return {**entry, "phase": hot_plug.ATTACHED_TO_NODE, "hotplugVolume": volume}
    stored = hot_plug.entry_of(seen.vm, str(disk["name"]))
    if wait is None and stored is not None and hot_plug.pod_of(seen.vm, disk) is not None:
        return stored
    name = hot_plug.pod_name(seen.vm, disk)
    not_yet = _Wait(hot_plug.POD_NOT_RUNNING, f"pod {name} does not run yet: kubectl describe pod {name}")
    why = wait or _wait_for_pod(seen, pod) or not_yet
    return {**entry, "phase": hot_plug.PENDING, "reason": why.reason, "message": why.message}


def _wait_for_pod(seen: Observed, pod: Object | None) -> _Wait | None:
    """Return why a pod will hardly run soon; else None. virt-api keeps a claim for a slow pod, and none for one with an obstacle."""
    if pod is None or pod_state.is_running(pod):
        return None
    if (found := pod_state.obstacle(pod)) is not None:
        return _Wait(found[0], f"pod {name_of(pod)}: {found[1]}")
    return _Wait(hot_plug.POD_SLOW, pod_state.slow_words(pod)) if (left := _seconds_left(seen, pod)) is not None and left <= 0 else None


def _seconds_left(seen: Observed, pod: Object) -> float | None:
    """Return the seconds until a pod with a node, which does not run, is slow (negative: since then); None for other pods."""
    bound_at = None if pod_state.is_running(pod) else pod_state.bound_at(pod)
    return None if bound_at is None else (times.parse(bound_at) - seen.now).total_seconds() + pod_state.SLOW_SECONDS


def _look(seen: Observed, waits: Mapping[str, _Wait]) -> tuple[Requeue, ...]:
    left = [seconds for pod in seen.attachment_pods if (seconds := _seconds_left(seen, pod)) is not None and seconds > 0]
    pauses = [*([LOOK_SECONDS] if waits else []), *(max(each, MIN_REQUEUE_SECONDS) for each in left)]
    return (Requeue(min(pauses)),) if pauses else ()


def _is_with_guest(seen: Observed, pod: Object) -> bool:
    return pod_state.node_of(pod) == dig_vm(seen.vm, "status", "nodeName")


def _create(seen: Observed, disk: Object) -> CreatePod:
    is_block = disk_claims.is_block(seen.claims.get(str(disks.claim_of(disk))))
    return CreatePod(launcher_pod.attachment_pod(seen.vm, disk, seen.settings, is_block=is_block), seen.vm, is_hot_plug=True)


def _delete(pod: Object) -> DeletePod:
    return DeletePod(name_of(pod), uid_of(pod))


def _write(seen: Observed, found: list[Object]) -> tuple[Action, ...]:
    if found == list(hot_plug.entries(seen.vm)):
        return ()
    status = {key: value for key, value in statuses.status_of(seen).items() if key != hot_plug.FIELD}
    return (WriteStatus({**status, hot_plug.FIELD: found} if found else status), *_warnings(seen, found))


def _warnings(seen: Observed, found: list[Object]) -> Iterator[Emit]:
    """Yield an Event for each disk that, by its new entry in ``found``, begins to wait for something that may need a user."""
    for each in found:
        stored = hot_plug.entry_of(seen.vm, str(each["name"])) or {}
        if each.get("reason") not in (None, hot_plug.POD_NOT_RUNNING, hot_plug.MIGRATING, pod_sizes.IN_PROGRESS, stored.get("reason")):
            yield Emit("Warning", str(each["reason"]), one_line(f"disk {each['name']}: {each['message']}", pod_state.MAX_MESSAGE))
