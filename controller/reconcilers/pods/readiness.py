"""The readiness gate of launcher pods: a condition that lets Services connect to the guest (KEP-580). Pure.

It is True in the pod with the uid in the machine's status while the guest runs there. So it is False before the start, in a migration's
target before the takeover, while the guest is paused, and while its probes fail. It stays True while libvirt stops a guest for a
migration's end, because connections can wait, but a Service without a ready pod refuses them, and while a guest shuts down; the pod's
deletion ends its connections.

A migration's source, which forwards connections for a few seconds, stays True until the target pod is ready or the source's
virt-launcher ends, so a Service always has one of the two.
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
"""``status.domain.state`` of a guest with running processors."""
MIGRATING_REASON: Final = "migrating"
"""``status.domain.reason`` of a guest stopped for a migration's end."""
GUEST_RUNNING: Final = ("True", "GuestRunning", "the guest runs in this pod")
GUEST_STOPPED: Final = ("False", "GuestPaused", "the guest in this pod is paused")
GUEST_NOT_STARTED: Final = ("False", "GuestNotRunning", "no guest runs in this pod")
GUEST_NOT_READY: Final = ("False", "GuestNotReady", "the guest runs in this pod, but its readiness probe fails")
GUEST_ELSEWHERE: Final = ("False", "GuestElsewhere", "the virtual machine's guest is not in this pod")


def has_gate(pod: Object) -> bool:
    """Return whether the pod has virt-controller's readiness gate; pods of older versions do not."""
    return any(each.get("conditionType") == names.GUEST_RUNNING_GATE for each in dig(pod, "spec", "readinessGates") or ())


def plan(vm: Object, pods: Iterable[Object], now: datetime) -> tuple[SetPodCondition, ...]:
    """Return the changed conditions for the pods' readiness gate, True ones first, so a pod is soon ready; none in phase Unknown."""
    if phases.phase_of(vm) == phases.UNKNOWN:
        return ()  # Kubernetes removes pods of an unreachable node from Services
    alive = [pod for pod in pods if liveness.may_run(pod)]
    stands_in = _that_stands_in(vm, alive)
    found = (_wanted(vm, pod, now) for pod in alive if has_gate(pod) and uid_of(pod) != stands_in)
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.condition["status"] != "True"))


def _that_stands_in(vm: Object, pods: Iterable[Object]) -> str | None:
    """Return the uid of the pod that the guest left, while its new pod is not ready; else None."""
    moved = dig_vm(vm, "status", "migration") or {}
    if moved.get("phase") != phases.SUCCEEDED or moved.get("targetPod") != dig_vm(vm, "status", "podName"):
        return None
    own = next((pod for pod in pods if _state(vm, pod) == GUEST_RUNNING), None)
    if own is None or pod_state.is_ready(own):
        return None
    return next((uid_of(pod) for pod in pods if name_of(pod) == moved.get("sourcePod")), None)


def _wanted(vm: Object, pod: Object, now: datetime) -> SetPodCondition | None:
    status, reason, message = _state(vm, pod)
    stored = condition(dig(pod, "status", "conditions"), names.GUEST_RUNNING_GATE)
    if status == (stored or {}).get("status", "False"):
        return None
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
