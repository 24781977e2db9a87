"""Readiness gate of launcher pods: its condition says whether one may get a Service's connections. Pure.

A pod with the gate is ready for Kubernetes only while this condition is True, whatever its container does (KEP-580). It is True in the one
pod that the machine's status names by uid, while the guest runs there. So it is not before the guest was started, not in the target of a
migration before the hand-over, not while the guest is paused, whoever paused it, and not while its probes fail, as the machine's condition
Ready says. A guest that libvirt stops for the last moments of a migration is not paused: its connections wait for it, where a Service that
has no pod refuses them. A guest that shuts down still runs: what ends its connections is the pod's deletion, as in any other pod.

The source of a migration, which passes connections on for a few seconds, keeps a True until the kubelet of the other pod has made that one
ready in fact: a Service always has one of the two. It has it no longer than virt-launcher lives there.

What is to be written follows from the machine and its pods alone, so that whoever leads next goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, condition, dig, name_of, uid_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases
from apiserver.apis.virt.places import names
from controller.reconcilers.actions import SetPodCondition
from controller.reconcilers.pods import liveness, ownership, pod_state

RUNNING_STATE: Final = "running"
"""Libvirt's word in ``status.domain.state`` for a guest whose processors are not stopped."""
MIGRATING_REASON: Final = "migrating"
"""Libvirt's word in ``status.domain.reason`` for a guest that it stopped while the last of its memory moves."""
GUEST_RUNNING: Final = ("True", "GuestRunning", "the guest runs in this pod")
GUEST_STOPPED: Final = ("False", "GuestPaused", "the guest is in this pod, and its processors are stopped")
GUEST_NOT_STARTED: Final = ("False", "GuestNotRunning", "no guest runs in this pod")
GUEST_NOT_READY: Final = ("False", "GuestNotReady", "the guest runs in this pod, and its probes do not succeed")
GUEST_ELSEWHERE: Final = ("False", "GuestElsewhere", "the virtual machine's guest is not in this pod")


def has_gate(pod: Object) -> bool:
    """Return whether the pod waits for the condition; those of older releases do not."""
    return any(each.get("conditionType") == names.GUEST_RUNNING_GATE for each in dig(pod, "spec", "readinessGates") or ())


def plan(vm: Object, pods: Iterable[Object], now: datetime) -> tuple[SetPodCondition, ...]:
    """Return what has to be written to pods of the machine, the one that becomes ready first: a Service is without a pod the shorter."""
    if phases.phase_of(vm) == phases.UNKNOWN:
        return ()  # nobody knows; Kubernetes itself takes pods of a silent node out of Services
    alive = [pod for pod in pods if liveness.may_run(pod)]
    stands_in = _that_stands_in(vm, alive)
    found = (_wanted(vm, pod, now) for pod in alive if has_gate(pod) and uid_of(pod) != stands_in)
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.condition["status"] != "True"))


def _that_stands_in(vm: Object, pods: Iterable[Object]) -> str | None:
    """Return the uid of the pod that the guest has left, while the one in which it may be asked is not ready yet; None: there is none."""
    moved = dig_vm(vm, "status", "migration") or {}
    if moved.get("phase") != phases.SUCCEEDED or moved.get("targetPod") != dig_vm(vm, "status", "podName"):
        return None
    own = next((pod for pod in pods if _state(vm, pod) == GUEST_RUNNING), None)
    if own is None or pod_state.is_ready(own):
        return None
    return next((uid_of(pod) for pod in pods if name_of(pod) == moved.get("sourcePod")), None)


def _wanted(vm: Object, pod: Object, now: datetime) -> SetPodCondition | None:
    status, reason, message = _state(vm, pod)
    known = condition(dig(pod, "status", "conditions"), names.GUEST_RUNNING_GATE)
    if status == (known or {}).get("status", "False"):
        return None  # none at all is as good as False
    wanted = {"type": names.GUEST_RUNNING_GATE, "status": status, "reason": reason, "message": message}
    return SetPodCondition(name_of(pod), uid_of(pod), {**wanted, "lastTransitionTime": times.to_rfc3339(now)})


def _state(vm: Object, pod: Object) -> tuple[str, str, str]:
    own = ownership.of_status(vm)
    if own is None or not own.uid or own.uid != uid_of(pod):
        return GUEST_ELSEWHERE
    if phases.phase_of(vm) not in (phases.RUNNING, phases.STOPPING):
        return GUEST_NOT_STARTED
    domain = dig_vm(vm, "status", "domain") or {}
    if domain.get("state") != RUNNING_STATE and domain.get("reason") != MIGRATING_REASON:
        return GUEST_STOPPED
    ready = condition(dig_vm(vm, "status", "conditions"), conditions.READY) or {}
    return GUEST_NOT_READY if ready.get("reason") in (conditions.NOT_PROBED, conditions.LIVENESS_FAILED) else GUEST_RUNNING
