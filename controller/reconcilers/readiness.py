"""Whether a launcher pod may get a Service's connections: the condition of its readiness gate. Pure.

A pod with the gate is ready for Kubernetes only while this condition is True, whatever its container does (KEP-580). It is True in the one
pod that the machine's status names by uid, while the guest runs there. So it is not before the guest was started, not in the target of a
migration before the hand-over, not in its source afterwards, and not while the guest is paused, whoever paused it. A guest that shuts down
still runs: what ends its connections is the pod's deletion, as in any other pod.

What is to be written follows from the machine and its pods alone, so that whoever leads next goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, condition, dig, name_of, uid_of
from apiserver.apis.virt import names, phases
from controller.reconcilers import ownership, pod_state
from controller.reconcilers.actions import SetPodCondition

RUNNING_STATE: Final = "running"
"""Libvirt's word in ``status.domain.state`` for a guest whose processors are not stopped."""
GUEST_RUNNING: Final = ("True", "GuestRunning", "the guest runs in this pod")
GUEST_STOPPED: Final = ("False", "GuestPaused", "the guest is in this pod, and its processors are stopped")
GUEST_NOT_STARTED: Final = ("False", "GuestNotRunning", "no guest runs in this pod")
GUEST_ELSEWHERE: Final = ("False", "GuestElsewhere", "the virtual machine's guest is not in this pod")


def has_gate(pod: Object) -> bool:
    """Return whether the pod waits for the condition; those of older releases do not."""
    return any(each.get("conditionType") == names.GUEST_RUNNING_GATE for each in dig(pod, "spec", "readinessGates") or ())


def plan(vm: Object, pods: Iterable[Object], now: datetime) -> tuple[SetPodCondition, ...]:
    """Return what has to be written to pods of the machine, the one that becomes ready first: a Service is without a pod the shorter."""
    if phases.phase_of(vm) == phases.UNKNOWN:
        return ()  # nobody knows; Kubernetes itself takes pods of a silent node out of Services
    found = (_wanted(vm, pod, now) for pod in pods if has_gate(pod) and not pod_state.is_over(pod))
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.condition["status"] != "True"))


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
    return GUEST_RUNNING if dig(vm, "status", "domain", "state") == RUNNING_STATE else GUEST_STOPPED
