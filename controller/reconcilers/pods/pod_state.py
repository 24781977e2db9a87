"""The state of a pod, read for the guest in it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, condition, dig, name_of
from apiserver.apis.virt.lifecycle import power
from apiserver.apis.virt.places import forms, names

_NORMAL_WAITING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


MAX_MESSAGE: Final = 500
"""Characters of what is said in or about a pod: it comes from the guest's side of the fence, or from a stranger's registry."""
MAX_REASON: Final = 128
_NO_WORD: Final = re.compile(r"[^A-Za-z0-9_]")
MIGRATED: Final = "migrated:"
"""virt-launcher's first word when the guest went on in another pod."""
LACKED_DEVICES: Final = "UnexpectedAdmissionError"
"""Reason of a pod that a kubelet could not admit just then, mostly for want of a device plugin (``pkg/kubelet/cm/devicemanager``)."""
CREATING: Final = "ContainerCreating"
"""Reason of what waits for a pod that has a node, as the kubelet says it."""
SLOW_SECONDS: Final = 60.0
"""From when on a pod that has a node and no running container is worth a word."""
_RESULTS: Final = {
    "shutdown": power.RESULT_SUCCEEDED,
    "shutdown-requested": power.RESULT_STOPPED,
    "destroyed": power.RESULT_STOPPED,
}
"""By the first word of virt-launcher's termination message (``launcher.protocol.messages.EndingKind``); everything else is a failure."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a pod: a ``RESULT_…`` of :mod:`apiserver.apis.virt.lifecycle.power`, and why, in one line."""

    result: str
    message: str


def phase_of(pod: Object | None) -> str:
    """Return ``status.phase``; empty for no pod."""
    return dig(pod, "status", "phase") or ""


def node_of(pod: Object | None) -> str:
    """Return the node the pod is bound to, or the empty string."""
    return dig(pod, "spec", "nodeName") or ""


def addresses_of(pod: Object) -> tuple[str, ...]:
    """Return the pod's addresses, the first of them ``status.podIP``; without those that no pod has, whatever its kubelet says."""
    found = [str(each.get("ip") or "") for each in dig(pod, "status", "podIPs") or ()] or [str(dig(pod, "status", "podIP") or "")]
    return tuple(each for each in found if forms.pod_ip(each) is not None)


def is_ready(pod: Object) -> bool:
    """Return whether its kubelet has told everybody that connections may come to it."""
    return (condition(dig(pod, "status", "conditions"), "Ready") or {}).get("status") == "True"


def is_over(pod: Object | None) -> bool:
    """Return whether nothing of the pod can run any more: it is gone, or final with no container that was last seen running.

    A pod whose node does not answer is not over, whatever asked for its deletion: kube-controller-manager may call it Failed while its
    containers were never seen to end.
    """
    if pod is None:
        return True
    if phase_of(pod) not in ("Succeeded", "Failed"):
        return False
    return not any(dig(each, "state", "running") is not None for each in dig(pod, "status", "containerStatuses") or ())


def is_running(pod: Object | None) -> bool:
    """Return whether its container was started and the pod has an address."""
    return phase_of(pod) == "Running" and any(
        dig(each, "state", "running") is not None for each in dig(pod, "status", "containerStatuses") or ()
    )


def running_since(pod: Object) -> str | None:
    """Return since when its container runs (RFC 3339, by the node's clock), or None."""
    found = (dig(each, "state", "running", "startedAt") for each in dig(pod, "status", "containerStatuses") or ())
    return next((each for each in found if each), None)


def has_run(pod: Object) -> bool:
    """True if its container was started, however that went: what a kubelet says of one that never was has no ``startedAt``."""
    states = [each.get("state") or {} for each in dig(pod, "status", "containerStatuses") or ()]
    return any(each.get("running") is not None or (each.get("terminated") or {}).get("startedAt") for each in states)


def lacked_devices(pod: Object | None) -> bool:
    """True if its kubelet could not admit it just then (:data:`LACKED_DEVICES`), which passes."""
    return phase_of(pod) == "Failed" and dig(pod, "status", "reason") == LACKED_DEVICES


def end_of(pod: Object) -> End:
    """Return how a pod that is over ended: in virt-launcher's own words, else in the kubelet's."""
    for each in dig(pod, "status", "containerStatuses") or ():
        if (terminated := dig(each, "state", "terminated")) is not None:
            code, said = terminated.get("exitCode"), str(terminated.get("message") or "")
            result = _RESULTS.get(said.partition(":")[0], power.RESULT_FAILED) if code == 0 else power.RESULT_FAILED
            words = said or f"virt-launcher ended: {terminated.get('reason') or 'for no known reason'}"
            return End(result, _one_line(f"{words} (exit code {code})" if code else words))
    reason, message = dig(pod, "status", "reason") or "", dig(pod, "status", "message") or ""
    return End(power.RESULT_FAILED, _one_line(": ".join(filter(None, (reason, message))) or f"pod {name_of(pod)} failed"))


def has_migrated(pod: Object) -> bool:
    """True if virt-launcher's last words are that the guest went on in another pod."""
    return end_of(pod).message.startswith(MIGRATED)


def _one_line(text: str) -> str:
    return one_line(text, MAX_MESSAGE)


def word(text: object, otherwise: str) -> str:
    """Return a reason out of a pod's status as one that a condition takes: kubelets and schedulers of any kind wrote it."""
    found = _NO_WORD.sub("", str(text or ""))[:MAX_REASON]
    return found if found[:1].isalpha() else otherwise


def has_kvm(pod: Object | None) -> bool:
    """Return whether the pod asks for KVM."""
    return any(names.KVM_RESOURCE in (dig(each, "resources", "limits") or {}) for each in dig(pod, "spec", "containers") or ())


def is_unschedulable(pod: Object) -> bool:
    """Return whether the scheduler says that it has no node for the pod."""
    return (condition(dig(pod, "status", "conditions"), "PodScheduled") or {}).get("status") == "False"


def obstacle(pod: Object) -> tuple[str, str] | None:
    """Return (reason, message) of what keeps a pod from running, if anything does: no node, an image, a volume."""
    conditions = dig(pod, "status", "conditions")
    scheduled = condition(conditions, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return word(scheduled.get("reason"), "Unschedulable"), _one_line(scheduled.get("message") or "no node can take the pod")
    for each in dig(pod, "status", "containerStatuses") or ():
        waiting = dig(each, "state", "waiting") or {}
        if waiting.get("reason", "") not in _NORMAL_WAITING:
            # A registry's answer is part of it, and users choose registries.
            return word(waiting["reason"], "Waiting"), _one_line(waiting.get("message") or f"container {each.get('name')} is waiting")
    return None


def slow_words(pod: Object) -> str:
    """Return the words for a pod that has had a node for :data:`SLOW_SECONDS` and does not run: only Events of it say why."""
    name = name_of(pod)
    return f"node {node_of(pod)} has not got the volumes, the network or the image of pod {name} ready yet: kubectl describe pod {name}"


def has_volumes(pod: Object) -> bool:
    """Return whether its node has mounted its volumes: a kubelet makes the sandbox, pulls images and makes containers after that."""
    waiting = (dig(each, "state", "waiting", "reason") or "" for each in dig(pod, "status", "containerStatuses") or ())
    sandbox = condition(dig(pod, "status", "conditions"), "PodReadyToStartContainers") or {}
    return bool(node_of(pod)) and (sandbox.get("status") == "True" or any(each not in _NORMAL_WAITING for each in waiting))


def bound_at(pod: Object) -> str | None:
    """Return when the pod got its node (RFC 3339), or None."""
    scheduled = condition(dig(pod, "status", "conditions"), "PodScheduled")
    return scheduled.get("lastTransitionTime") if scheduled is not None and scheduled.get("status") == "True" else None
