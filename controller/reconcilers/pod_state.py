"""What a pod's status means for the guest in it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from apiserver.apis.meta.objects import Object, condition, dig, name_of

_NORMAL_WAITING = frozenset({"", "ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True)
class End:
    """How a pod ended: ``failed`` when the guest never ran, or crashed."""

    failed: bool
    message: str


def phase_of(pod: Object | None) -> str:
    """Return ``status.phase``; empty for no pod."""
    return dig(pod, "status", "phase") or ""


def node_of(pod: Object | None) -> str:
    """Return the node the pod is bound to, or the empty string."""
    return dig(pod, "spec", "nodeName") or ""


def is_over(pod: Object | None) -> bool:
    """Whether nothing of the pod can run any more: it is gone, or final with no container that was last seen running.

    A pod whose node does not answer is not over, whatever asked for its deletion: kube-controller-manager may call it Failed while its
    containers were never seen to end.
    """
    if pod is None:
        return True
    if phase_of(pod) not in ("Succeeded", "Failed"):
        return False
    return not any(dig(each, "state", "running") is not None for each in dig(pod, "status", "containerStatuses") or ())


def is_running(pod: Object | None) -> bool:
    """Whether its container was started and the pod has an address."""
    return phase_of(pod) == "Running" and any(
        dig(each, "state", "running") is not None for each in dig(pod, "status", "containerStatuses") or ()
    )


def end_of(pod: Object) -> End:
    """Return how a pod that is over ended: in virt-launcher's own words, else in the kubelet's."""
    for each in dig(pod, "status", "containerStatuses") or ():
        if (terminated := dig(each, "state", "terminated")) is not None:
            failed = terminated.get("exitCode") != 0
            said = (terminated.get("message") or "").strip() or f"virt-launcher: {terminated.get('reason') or 'ended'}"
            code = f" (exit code {terminated.get('exitCode')})" if failed else ""
            return End(failed, f"{said}{code}")
    reason, message = dig(pod, "status", "reason") or "", dig(pod, "status", "message") or ""
    return End(failed=True, message=": ".join(filter(None, (reason, message))) or f"pod {name_of(pod)} failed")


def obstacle(pod: Object) -> tuple[str, str] | None:
    """Return (reason, message) of what keeps a pod from running, if anything does: no node, an image, a volume."""
    conditions = dig(pod, "status", "conditions")
    scheduled = condition(conditions, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return scheduled.get("reason") or "Unschedulable", scheduled.get("message") or "no node can take the pod"
    for each in dig(pod, "status", "containerStatuses") or ():
        waiting = dig(each, "state", "waiting") or {}
        if waiting.get("reason", "") not in _NORMAL_WAITING:
            return waiting["reason"], waiting.get("message") or f"container {each.get('name')} is waiting"
    return None


def bound_at(pod: Object) -> str | None:
    """Return when the pod got its node (RFC 3339), or None."""
    scheduled = condition(dig(pod, "status", "conditions"), "PodScheduled")
    return scheduled.get("lastTransitionTime") if scheduled is not None and scheduled.get("status") == "True" else None
