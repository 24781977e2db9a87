"""The liveness of a pod: one verdict on whether its containers may still run, from all the evidence of one pass. Pure.

=====================================================  ===========================================================
evidence                                               verdict
=====================================================  ===========================================================
the pod has a final phase and no running container     over: its kubelet says so
the API server lacks the pod, and no status names it   over: it never ran, or another pass saw its end
the pod is gone, and so is its grace period            over: a kubelet that reports has ended its containers
the pod went while its whole node was silent           over: the user who deleted it states that the node is off
the pod is gone, and a person calls its node off       over: the taint ``out-of-service``, or the deletion of the Node
the pod went before its whole node fell silent         unknown, until the node reports or a person calls it off
the pod is gone, and its grace period is not over      unknown, for the seconds that are left
only the pod's kubelet is silent                       unknown, until the kubelet reports
the pod's whole node is silent                         unknown, until the node reports
the pod is there, and its kubelet reports              alive
=====================================================  ===========================================================

Silence proves nothing: kube-controller-manager may set the phase ``Failed`` while the containers run on a node that is cut off. A proof
that such a node was fenced becomes another field of :class:`Evidence`, and another line of :func:`verdict`. All plans use this module. No
other module calls :func:`controller.reconcilers.pods.pod_state.is_over`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from apiserver.apis.meta.objects import Object
from controller.reconcilers.nodes.node_reports import Silence
from controller.reconcilers.pods import pod_state


class Witness(enum.Enum):
    """Evidence that the containers of a pod do not run any more."""

    KUBELET = "kubelet"
    """It wrote a final phase, and the end of every container."""
    ABSENCE = "absence"
    """The API server does not have the pod, and no status names it by uid."""
    TIME = "time"
    """The pod is gone, and a kubelet that reports had its grace period to end the containers; or the pod was over before it went."""
    PERSON = "person"
    """A person states that the silent node is off: by its taint, its deletion, or a forced deletion of the pod.

    The deletion of a pod counts only if the machine's message had asked for it. A pod that a user deletes on a healthy node may run on when
    this node is cut off later.
    """


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
    """No container of the pod runs, or will run."""

    by: Witness


@dataclass(frozen=True, slots=True)
class Unknown:
    """Containers of the pod may run."""

    until: Decider
    seconds: float | None = None
    """The verdict changes after this time, without an event; None: it does not change with time."""


Verdict: TypeAlias = Alive | Over | Unknown
ALIVE: Final = Alive()
LOST: Final = Unknown(Decider.NODE)
"""The verdict on a pod of a node that does not report at all."""
LOST_LOOK_SECONDS: Final = 10.0
"""The time between two looks at a pod that is gone and whose node is silent."""


@dataclass(frozen=True, slots=True)
class Absent:
    """A pod that a status names by uid, and that the API server does not have: it was deleted, perhaps by force."""

    name: str
    uid: str
    node: str
    """The node that it ran on; empty if the status names none."""
    lingers: float
    """The seconds of its grace period that are left; 0 for a pod that was over before it went."""
    migration: str = ""
    """The Migration that has it as its target; empty for the machine's own pod."""
    went_with_node: bool = False
    """The machine reported the silence of the node before the pod was deleted."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Knowledge of one pass about the pods of one machine, besides their own statuses."""

    silence: Silence = field(default_factory=Silence)
    """The silent nodes."""
    absent: tuple[Absent, ...] = ()
    """The pods that may have a guest and are gone."""


NOTHING: Final = Evidence()
"""The evidence of a caller that knows no more than the pods' own statuses."""


def verdict(pod: Object | Absent | None, evidence: Evidence = NOTHING) -> Verdict:
    """Return the verdict on a pod."""
    if pod is None:
        return Over(Witness.ABSENCE)
    if isinstance(pod, Absent):
        return _of_absent(pod, evidence)
    if pod_state.is_over(pod):
        return Over(Witness.KUBELET)
    return _of_silent(pod_state.node_of(pod), evidence) or ALIVE


def may_run(pod: Object | Absent | None, evidence: Evidence = NOTHING) -> bool:
    """Return whether the containers of a pod may still run: it is alive or unknown."""
    return not isinstance(verdict(pod, evidence), Over)


def was_lost_with_its_node(evidence: Evidence) -> str:
    """Return the node with which the machine's own pod was lost, as a person states; empty if it was not."""
    own = (each for each in evidence.absent if not each.migration)
    return next((each.node for each in own if verdict(each, evidence) == Over(Witness.PERSON)), "")


def seconds_to_next_look(found: Unknown) -> float:
    """Return the seconds until another look at a pod that is gone. No event of its node leads to the machine."""
    return LOST_LOOK_SECONDS if found.seconds is None else found.seconds


def _of_absent(pod: Absent, evidence: Evidence) -> Verdict:
    silent = _of_silent(pod.node, evidence)
    if silent == LOST:
        return Over(Witness.PERSON) if pod.went_with_node or pod.node in evidence.silence.off else LOST
    return silent or (Unknown(Decider.TIME, pod.lingers) if pod.lingers else Over(Witness.TIME))


def _of_silent(node: str, evidence: Evidence) -> Unknown | None:
    """Return the verdict on a pod if its kubelet is silent; None if its kubelet reports."""
    if node in evidence.silence.whole:
        return LOST
    left = evidence.silence.of_kubelet.get(node)
    return None if left is None else Unknown(Decider.KUBELET, left)
