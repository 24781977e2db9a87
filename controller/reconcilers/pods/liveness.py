"""The liveness of a pod: one verdict on whether anything of it may still run, from all the evidence of one pass. Pure.

====================================================  ==================================================
evidence                                              verdict
====================================================  ==================================================
the pod's phase is final, and no container runs       over: its kubelet said so
the API server has no such pod, and no status         over: it never ran, or another pass saw its end
names it by uid
the pod is gone, and its grace period has passed      over: a living kubelet has ended its containers
the pod is gone, and its node does not report at all  over: the person who deleted it says that it is off
the pod is gone, and its grace period has not passed  unknown, for so many seconds
the pod's kubelet does not report, its virt-handler   unknown, until the kubelet reports
does
neither of them reports                               unknown, until the node reports
the pod is there and its kubelet reports              alive
====================================================  ==================================================

Silence proves nothing: kube-controller-manager may call a pod ``Failed`` while its containers run on a node that is cut off. A proof that
such a node was fenced is a further field of :class:`Evidence`, and a further line of :func:`verdict`. All plans ask this module; nothing
else reads :func:`controller.reconcilers.pods.pod_state.is_over`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from apiserver.apis.meta.objects import Object
from controller.reconcilers.nodes.node_reports import Silence
from controller.reconcilers.pods import pod_state


class Witness(enum.Enum):
    """Evidence that nothing of a pod runs any more."""

    KUBELET = "kubelet"
    """It wrote a final phase, and the end of every container."""
    ABSENCE = "absence"
    """The API server does not have the pod, and no status names it by uid."""
    TIME = "time"
    """The pod is gone, and a kubelet that reports had its grace period to end the containers; or the pod was over before it went."""
    PERSON = "person"
    """Somebody deleted the pod by force while its whole node was silent. The machine's message asks for this once the node is off."""


class Decider(enum.Enum):
    """Evidence that would decide about a pod."""

    NODE = "node"
    """The node reports again, or a person says that it is off. No time decides."""
    KUBELET = "kubelet"
    """The kubelet reports again. Until then no container starts or ends."""
    TIME = "time"
    """The pod's grace period passes."""


@dataclass(frozen=True, slots=True)
class Alive:
    """The pod is there, and its kubelet reports."""


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing of the pod runs, or will run."""

    by: Witness


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something of the pod may run."""

    until: Decider
    seconds: float | None = None
    """The time after which the verdict changes without an event; None: no time changes it."""


Verdict: TypeAlias = Alive | Over | Unknown
ALIVE: Final = Alive()
LOST: Final = Unknown(Decider.NODE)
"""The verdict on a pod of a node that does not report at all."""


@dataclass(frozen=True, slots=True)
class Absent:
    """A pod that a status names by uid, and that the API server does not have: it was deleted, perhaps by force."""

    name: str
    uid: str
    node: str
    """The node that it ran on; empty where the status does not name one."""
    lingers: float
    """The seconds of its grace period that are left; 0 for a pod that was over before it went."""
    migration: str = ""
    """The Migration whose target it is; empty for the machine's own pod."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one pass knows about the pods of one machine, besides their own statuses."""

    silence: Silence = field(default_factory=Silence)
    """The nodes whose kubelets and virt-handlers do not report."""
    absent: tuple[Absent, ...] = ()
    """The pods that may have a guest and are gone."""


NOTHING: Final = Evidence()
"""The evidence of a caller that knows no more than the pods' own statuses."""


def verdict(pod: Object | Absent | None, evidence: Evidence = NOTHING) -> Verdict:
    """Return whether anything of a pod may still run."""
    if pod is None:
        return Over(Witness.ABSENCE)
    if isinstance(pod, Absent):
        return _of_absent(pod, evidence)
    if pod_state.is_over(pod):
        return Over(Witness.KUBELET)
    return _of_silent(pod_state.node_of(pod), evidence) or ALIVE


def may_run(pod: Object | Absent | None, evidence: Evidence = NOTHING) -> bool:
    """Return whether anything of a pod may still run, for all that is known: it is not over."""
    return not isinstance(verdict(pod, evidence), Over)


def _of_absent(pod: Absent, evidence: Evidence) -> Verdict:
    silent = _of_silent(pod.node, evidence)
    if silent == LOST:
        return Over(Witness.PERSON)
    return silent or (Unknown(Decider.TIME, pod.lingers) if pod.lingers else Over(Witness.TIME))


def _of_silent(node: str, evidence: Evidence) -> Unknown | None:
    """Return the verdict on a pod of a node that does not report, or whose kubelet does not; None if both report."""
    if node in evidence.silence.whole:
        return LOST
    left = evidence.silence.of_kubelet.get(node)
    return None if left is None else Unknown(Decider.KUBELET, left)
