"""Resizes the pod of a running guest before the guest gets memory, and after it released memory. Pure.

``apiserver.apis.virt.spec.pod_memory`` has the steps' order. A migration's target pod is made with the size that the guest may have.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object, is_deleting, name_of, uid_of
from apiserver.apis.virt.hardware import memory
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.spec import pod_memory, running
from controller.reconcilers.actions import Action, ResizePod, WriteStatus
from controller.reconcilers.launcher_pods import launcher_pod
from controller.reconcilers.pods import pod_state
from controller.reconcilers.virtual_machines import statuses
from controller.reconcilers.virtual_machines.observed import Observed, own_pod

REFUSED: Final = "PodResizeRefused"
IN_PROGRESS: Final = "PodResizeInProgress"


def plan(seen: Observed) -> tuple[Action, ...]:
    """Return the resize of the running guest's pod, or the record of the memory that it got; empty if not due."""
    if phases.phase_of(seen.vm) != phases.RUNNING or not memory.grows(running.spec_of(seen.vm).get("domain") or {}):
        return ()
    pod, wanted = own_pod(seen, seen.pods), pod_memory.wanted(seen.vm)
    if pod is None or is_deleting(pod) or wanted is None or any(phases.is_unfinished(each) for each in seen.migrations):
        return ()
    granted = pod_memory.granted(seen.vm)
    if wanted > granted:
        return _grow(seen, wanted)
    if wanted < granted:
        return _record(seen, wanted) if pod_memory.is_released(seen.vm) else ()
    return _fit(seen, pod, wanted) if pod_memory.recorded(seen.vm) else ()


class Room(NamedTuple):
    """Why a guest's pod lacks memory, and the actions that give it; no ``reason``: it has enough."""

    actions: tuple[Action, ...] = ()
    reason: str = ""
    message: str = ""


def room(seen: Observed, amount: int) -> Room:
    """Return what the guest's pod lacks for its new disks and this much guest memory (0: the present amount)."""
    if (pod := own_pod(seen, seen.pods)) is None:
        return Room((), IN_PROGRESS, "the pod of the guest is not known yet")
    resize = _resize(seen, pod, amount)
    needed = _limit(resize.resources)
    if pod_state.memory_limit(pod) < needed:
        refusal = seen.refusals.get(resize.request)
        return Room((resize,), IN_PROGRESS, f"pod {name_of(pod)} must get more memory") if refusal is None else Room((), REFUSED, refusal)
    if pod_state.actual_memory_limit(pod) >= needed:
        return Room()
    return Room((), *(pod_state.resize_obstacle(pod) or (IN_PROGRESS, f"the kubelet has not resized pod {name_of(pod)} yet")))


def _grow(seen: Observed, wanted: int) -> tuple[Action, ...]:
    actions, reason, message = room(seen, wanted)
    return actions or _record(seen, pod_memory.recorded(seen.vm) if reason else wanted, reason, message)


def _fit(seen: Observed, pod: Object, amount: int) -> tuple[Action, ...]:
    """Return the resize of a pod with another memory limit than ``amount`` needs; empty if it fits, or was refused recently."""
    resize = _resize(seen, pod, amount)
    is_done = pod_state.memory_limit(pod) == _limit(resize.resources)
    return () if is_done or resize.request in seen.refusals else (resize,)


def _resize(seen: Observed, pod: Object, amount: int) -> ResizePod:
    return ResizePod(name_of(pod), uid_of(pod), launcher_pod.resized(seen.vm, seen.claims, amount))


def _limit(resources: Object) -> int:
    return quantity.parse(resources["limits"]["memory"]).bytes


def _record(seen: Observed, amount: int, reason: str = "", message: str = "") -> tuple[Action, ...]:
    told = {"reason": reason, "message": message} if reason else {}
    found = {**({"guestMemoryBytes": amount} if amount else {}), **told}
    return (
        ()
        if found == dig_vm(seen.vm, "status", pod_memory.FIELD)
        else (WriteStatus({**statuses.status_of(seen), pod_memory.FIELD: found}),)
    )
