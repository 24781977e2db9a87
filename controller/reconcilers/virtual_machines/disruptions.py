"""Pods that the cluster ends on purpose: drain, preemption, taint, node pressure. Pure.

Kubernetes sets the pod's condition ``DisruptionTarget`` (KEP-3329), which is lost with the pod. The machine gets the condition until its
next attempt begins or a user switches it off. It means that the machine was interrupted and did not end
(:func:`apiserver.apis.virt.lifecycle.power.was_interrupted`).

A pod rejected by its kubelet while virt-handler (a device plugin) restarts counts too, by the reason of its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import (
    Object,
    condition,
    dig,
    generation_of,
    name_of,
    new_condition,
    with_condition,
    with_conditions_judged,
    without_condition,
)
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions
from controller.reconcilers.actions import MIN_REQUEUE_SECONDS, Action, Emit, Requeue, WriteStatus
from controller.reconcilers.pods import liveness, pod_state
from controller.reconcilers.virtual_machines import attempts, statuses
from controller.reconcilers.virtual_machines.observed import Observed, own_pod

_WHO: Final[Mapping[str, str]] = MappingProxyType(
    {
        "EvictionByEvictionAPI": "was evicted, as by kubectl drain",
        "PreemptionByScheduler": "was preempted by the scheduler, for a pod of higher priority",
        "DeletionByTaintManager": "does not tolerate a taint of its node",
        "DeletionByPodGC": "was deleted because its node is gone",
        "TerminationByKubelet": "was ended by the kubelet, because the node is short of resources or shuts down",
        pod_state.LACKED_DEVICES: "was rejected by the kubelet, usually because a device plugin is restarting",
    }
)


SETTLE_SECONDS: Final = 10.0
"""From allowing an eviction to the pod's condition; longer than kube-apiserver takes for the request."""


def report(seen: Observed) -> tuple[Action, ...]:
    """Return actions that set ``DisruptionTarget`` if the pod is disrupted, or remove it once the machine goes on without a disruption."""
    found, stored = _of_pod(seen), _stored(seen)
    if found is not None and (stored is None or stored.get("reason") == conditions.EVICTION_ALLOWED):
        reason, message = found
        new = new_condition(seen.vm, conditions.DISRUPTION_TARGET, "True", reason, message)
        changed = with_condition(dig_vm(seen.vm, "status", "conditions"), new, now=times.to_rfc3339(seen.now))
        return (WriteStatus({**statuses.status_of(seen), "conditions": changed}), Emit("Warning", reason, message))
    if stored is None:
        return ()
    if found is not None and stored.get("observedGeneration", generation_of(seen.vm)) != generation_of(seen.vm):
        return (WriteStatus(with_conditions_judged(seen.vm, statuses.status_of(seen), (conditions.DISRUPTION_TARGET,))),)
    if found is None and _goes_on(seen) and not _settles(seen):
        changed = without_condition(dig_vm(seen.vm, "status", "conditions"), conditions.DISRUPTION_TARGET)
        return (WriteStatus({**statuses.status_of(seen), "conditions": changed}),)
    return ()


def until_settled(seen: Observed) -> tuple[Action, ...]:
    """Return a requeue to check whether an allowed eviction happened, because another webhook may have refused it."""
    left = _settles(seen) if _goes_on(seen) and _of_pod(seen) is None else 0.0
    return (Requeue(max(left, MIN_REQUEUE_SECONDS)),) if left else ()


def added(seen: Observed, message: str) -> str:
    """Return the message of an attempt's end, with the disruption if there was one."""
    stored = _stored(seen)
    return message if stored is None else f"{stored.get('message')} ({message})"


def _stored(seen: Observed) -> Mapping[str, object] | None:
    return condition(dig_vm(seen.vm, "status", "conditions"), conditions.DISRUPTION_TARGET)


def _goes_on(seen: Observed) -> bool:
    own = own_pod(seen, seen.pods)
    return own is not None and attempts.is_open(seen.vm) and liveness.may_run(own, seen.evidence)


def _settles(seen: Observed) -> float:
    """Return the remaining seconds for an allowed eviction to set the pod's own condition; 0 without an allowed eviction."""
    stored = _stored(seen) or {}
    if stored.get("reason") != conditions.EVICTION_ALLOWED:
        return 0.0
    since = stored.get("lastTransitionTime")
    age = (seen.now - times.parse(str(since))).total_seconds() if since else SETTLE_SECONDS
    return min(max(SETTLE_SECONDS - age, 0.0), SETTLE_SECONDS)  # another replica wrote it, by its own clock


def _of_pod(seen: Observed) -> tuple[str, str] | None:
    if (pod := own_pod(seen, seen.pods)) is None:
        return None
    if pod_state.lacked_devices(pod):
        return pod_state.LACKED_DEVICES, _told(pod, pod_state.LACKED_DEVICES)  # the attempt ends with the kubelet's message
    found = condition(dig(pod, "status", "conditions"), conditions.DISRUPTION_TARGET)
    if found is None or found.get("status") != "True":
        return None
    reason = pod_state.word(found.get("reason"), "Disrupted")
    detail = one_line(str(found.get("message") or ""), pod_state.MAX_MESSAGE)
    return reason, _told(pod, reason) + (f": {detail}" if detail else "")


def _told(pod: Object, reason: str) -> str:
    return f"pod {name_of(pod)} on node {pod_state.node_of(pod)} {_WHO.get(reason) or 'is being disrupted'}"
