"""The state of a pod with a guest. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import quantity
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, condition, dig, name_of
from apiserver.apis.virt.lifecycle import power
from apiserver.apis.virt.places import forms, names

_NORMAL_WAITING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


MAX_MESSAGE: Final = 500
MAX_REASON: Final = 128
_NO_WORD: Final = re.compile(r"[^A-Za-z0-9_]")
MIGRATED: Final = "migrated:"
"""Begins virt-launcher's termination message if the guest continues in another pod."""
LACKED_DEVICES: Final = "UnexpectedAdmissionError"
"""The kubelet could not admit the pod, usually for lack of a device plugin (``pkg/kubelet/cm/devicemanager``)."""
_OUT_OF_MEMORY: Final = "OOMKilled"
"""The kernel ended a process of the container for lack of memory, not necessarily the first one."""
_LACKED_MEMORY: Final = "the pod reached its memory limit (spec.domain.resources.limits.memory), or its node lacked memory"
CREATING: Final = "ContainerCreating"
SLOW_SECONDS: Final = 60.0
"""Before a pod with a node and no running container is reported."""
_RESULTS: Final = {
    "shutdown": power.RESULT_SUCCEEDED,
    "shutdown-requested": power.RESULT_STOPPED,
    "destroyed": power.RESULT_STOPPED,
    "saved": power.RESULT_SUSPENDED,
}
"""By the first word of virt-launcher's termination message (``launcher.protocol.messages.EndingKind``); others are failures."""


@dataclass(frozen=True, slots=True)
class End:
    """A pod's end: a ``RESULT_…`` of :mod:`apiserver.apis.virt.lifecycle.power`, and a one-line reason."""

    result: str
    message: str


def phase_of(pod: Object | None) -> str:
    """Return ``status.phase``; empty for no pod."""
    return dig(pod, "status", "phase") or ""


def node_of(pod: Object | None) -> str:
    """Return the pod's node; else empty."""
    return dig(pod, "spec", "nodeName") or ""


def addresses_of(pod: Object) -> tuple[str, ...]:
    """Return the pod's valid addresses, ``status.podIP`` first."""
    found = [str(each.get("ip") or "") for each in dig(pod, "status", "podIPs") or ()] or [str(dig(pod, "status", "podIP") or "")]
    return tuple(each for each in found if forms.pod_ip(each) is not None)


def is_ready(pod: Object) -> bool:
    """Return whether the pod's condition Ready is True."""
    return (condition(dig(pod, "status", "conditions"), "Ready") or {}).get("status") == "True"


def is_over(pod: Object | None) -> bool:
    """Return whether nothing of the pod can run: it is gone, or final without a running container.

    A pod that kube-controller-manager set to Failed on an unreachable node, without seeing its containers end, is not over.
    """
    if pod is None:
        return True
    if phase_of(pod) not in ("Succeeded", "Failed"):
        return False
    return not any(dig(each, "state", "running") is not None for each in dig(pod, "status", "containerStatuses") or ())


def is_running(pod: Object | None) -> bool:
    """Return whether the phase is Running and a container runs."""
    return phase_of(pod) == "Running" and any(
        dig(each, "state", "running") is not None for each in dig(pod, "status", "containerStatuses") or ()
    )


def running_since(pod: Object) -> str | None:
    """Return since when the pod's container runs (RFC 3339, by the node's clock), or None."""
    found = (dig(each, "state", "running", "startedAt") for each in dig(pod, "status", "containerStatuses") or ())
    return next((each for each in found if each), None)


def has_run(pod: Object) -> bool:
    """True if the pod's container has started."""
    states = [each.get("state") or {} for each in dig(pod, "status", "containerStatuses") or ()]
    return any(each.get("running") is not None or (each.get("terminated") or {}).get("startedAt") for each in states)


def lacked_devices(pod: Object | None) -> bool:
    """True if the kubelet failed the pod with reason :data:`LACKED_DEVICES`."""
    return phase_of(pod) == "Failed" and dig(pod, "status", "reason") == LACKED_DEVICES


def end_of(pod: Object) -> End:
    """Return how an ended pod ended, as result and message: virt-launcher's or else the kubelet's. A pod that runs seems failed."""
    for each in dig(pod, "status", "containerStatuses") or ():
        if (terminated := dig(each, "state", "terminated")) is not None:
            code, said = terminated.get("exitCode"), str(terminated.get("message") or "")
            result = _RESULTS.get(said.partition(":")[0], power.RESULT_FAILED) if code == 0 else power.RESULT_FAILED
            reason = str(terminated.get("reason") or "no reason given")
            words = said or f"virt-launcher ended: {reason}"
            if code and reason == _OUT_OF_MEMORY:
                words = f"{_LACKED_MEMORY}; {words}"
            return End(result, _one_line(f"{words} (exit code {code})" if code else words))
    reason, message = dig(pod, "status", "reason") or "", dig(pod, "status", "message") or ""
    return End(power.RESULT_FAILED, _one_line(": ".join(filter(None, (reason, message))) or f"pod {name_of(pod)} failed"))


def has_migrated(pod: Object) -> bool:
    """True if virt-launcher's last message says that the guest went on in another pod."""
    return end_of(pod).message.startswith(MIGRATED)


def _one_line(text: str) -> str:
    return one_line(text, MAX_MESSAGE)


def word(text: object, otherwise: str) -> str:
    """Return ``text`` reduced to a valid condition reason, else ``otherwise``; kubelets and schedulers may write any text."""
    found = _NO_WORD.sub("", str(text or ""))[:MAX_REASON]
    return found if found[:1].isalpha() else otherwise


def has_kvm(pod: Object | None) -> bool:
    """Return whether the pod requests KVM."""
    return any(names.KVM_RESOURCE in (dig(each, "resources", "limits") or {}) for each in dig(pod, "spec", "containers") or ())


def memory_limit(pod: Object) -> int:
    """Return the memory limit of the pod's container in bytes; 0 without one."""
    return _bytes(next((dig(each, "resources", "limits", "memory") for each in dig(pod, "spec", "containers") or ()), None))


def actual_memory_limit(pod: Object) -> int:
    """Return the memory limit that the kubelet gave the container, in bytes; 0 if it does not report one."""
    found = (each for each in dig(pod, "status", "containerStatuses") or () if each.get("name") == names.CONTAINER)
    return _bytes(next((dig(each, "resources", "limits", "memory") for each in found), None))


def _bytes(given: object) -> int:
    try:
        return quantity.parse(str(given or "0")).bytes
    except ValueError:
        return 0


def resize_obstacle(pod: Object) -> tuple[str, str] | None:
    """Return (reason, message) while the kubelet does not resize the pod: ``Deferred``, ``Infeasible``, or an error; else None."""
    for kind in ("PodResizePending", "PodResizeInProgress"):
        found = condition(dig(pod, "status", "conditions"), kind)
        if found is not None and found.get("status") == "True" and found.get("message"):
            return word(found.get("reason"), kind), _one_line(found["message"])
    return None


def is_unschedulable(pod: Object) -> bool:
    """Return whether the scheduler found no node for the pod."""
    return (condition(dig(pod, "status", "conditions"), "PodScheduled") or {}).get("status") == "False"


def obstacle(pod: Object) -> tuple[str, str] | None:
    """Return (reason, message) if no node takes the pod, or its container waits abnormally; else None."""
    conditions = dig(pod, "status", "conditions")
    scheduled = condition(conditions, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return word(scheduled.get("reason"), "Unschedulable"), _one_line(scheduled.get("message") or "no node can run the pod")
    for each in dig(pod, "status", "containerStatuses") or ():
        waiting = dig(each, "state", "waiting") or {}
        if waiting.get("reason", "") not in _NORMAL_WAITING:
            # It may contain a registry's answer, and users choose registries.
            return word(waiting["reason"], "Waiting"), _one_line(waiting.get("message") or f"container {each.get('name')} is waiting")
    return None


def slow_words(pod: Object) -> str:
    """Return the message for a pod that has a node for :data:`SLOW_SECONDS` and does not run."""
    name = name_of(pod)
    return (
        f"node {node_of(pod)} has not prepared the volumes, network or image of pod {name} yet; the pod's "
        f"events have the cause: kubectl describe pod {name}"
    )


def has_volumes(pod: Object) -> bool:
    """Return whether the pod has its volumes: the sandbox is ready, or the container waits for something later."""
    waiting = (dig(each, "state", "waiting", "reason") or "" for each in dig(pod, "status", "containerStatuses") or ())
    sandbox = condition(dig(pod, "status", "conditions"), "PodReadyToStartContainers") or {}
    return bool(node_of(pod)) and (sandbox.get("status") == "True" or any(each not in _NORMAL_WAITING for each in waiting))


def bound_at(pod: Object) -> str | None:
    """Return when the pod got its node (RFC 3339), or None."""
    scheduled = condition(dig(pod, "status", "conditions"), "PodScheduled")
    return scheduled.get("lastTransitionTime") if scheduled is not None and scheduled.get("status") == "True" else None
