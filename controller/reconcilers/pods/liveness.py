"""A pod's liveness: one verdict on whether its containers may run, from all the evidence of one pass. Pure.

=====================================================  ===========================================================
evidence                                               verdict
=====================================================  ===========================================================
the pod has a final phase and no running container     over: its kubelet says so
the pod is there, and a person calls its node off      over: the taint ``out-of-service`` for the node's latest boot
the sealed Lease of a guardian lists the pod           over: that guardian has ended it, whatever else is known
the API server lacks the pod, and no status names it   over: it never ran, or another pass saw its end
the pod is gone, and so is its grace period            over: a kubelet that reports has ended its containers
the pod went while its node was unreachable            over: the user who deleted it states that the node is off
the pod is gone, and a person calls its node off       over: the taint ``out-of-service``, or the deletion of the Node
the pod went before its node became unreachable        unknown, until the node reports or a person calls it off
the pod is gone, and its grace period is not over      unknown, for the seconds that are left
only the pod's kubelet is unreachable                  unknown, until the kubelet reports
the pod's node is unreachable                          unknown, until the node reports
the pod is there, and its kubelet reports              alive
=====================================================  ===========================================================

An unreachable node proves nothing: kube-controller-manager may set the phase ``Failed`` while the containers run on a node that is cut off.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from apiserver.apis.meta.objects import Object, uid_of
from controller.reconcilers.nodes.node_reports import Unreachable
from controller.reconcilers.pods import pod_state


class Witness(enum.Enum):
    """Evidence that no container of a pod runs."""

    KUBELET = "kubelet"
    """It wrote a final phase, and every container's end."""
    ABSENCE = "absence"
    """The API server lacks the pod, and no status names it by uid."""
    TIME = "time"
    """The pod is gone, and a reporting kubelet had its grace period to end the containers; or the pod was over before."""
    GUARDIAN = "guardian"
    """The sealed Lease of its node's guardian lists the pod (``controller.sealing``). No container of it starts again."""
    PERSON = "person"
    """A person states that the unreachable node is off: by its taint, its deletion, or a forced deletion of the pod.

    That deletion counts only if the machine's message had asked for it: a pod deleted on a healthy node may run when the node is cut off
    later."""


class Decider(enum.Enum):
    """What will show whether containers of a pod still run. TIME: the pod is gone, and its kubelet still has time to end them."""

    NODE = "node"
    """The node reports again, or a person says that it is off. No time decides."""
    KUBELET = "kubelet"
    """The kubelet reports again. Until then no container starts or ends."""
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Alive:
    """The pod is there, and its kubelet reports."""


@dataclass(frozen=True, slots=True)
class Over:
    """No container of the pod runs, or will run."""

    by: Witness


@dataclass(frozen=True, slots=True)
class Unknown:
    """Containers of the pod may run. ``until`` is what will show it; ``seconds``: until the next look, if known."""

    until: Decider
    seconds: float | None = None


Verdict: TypeAlias = Alive | Over | Unknown
ALIVE: Final = Alive()
LOST: Final = Unknown(Decider.NODE)
"""On a pod of an unreachable node."""
FENCED: Final = Over(Witness.PERSON)
SEALED: Final = Over(Witness.GUARDIAN)
LOST_LOOK_SECONDS: Final = 10.0
"""Between two looks at an absent pod of an unreachable node."""


@dataclass(frozen=True, slots=True)
class Absent:
    """A pod that a status names by uid, and that the API server does not have."""

    name: str
    uid: str
    node: str
    """Empty if the status names none."""
    lingers: float
    """The remaining seconds of its grace period; 0 for a pod that was over before."""
    migration: str = ""
    """The Migration with this target; empty for the machine's own pod."""
    went_with_node: bool = False
    """The machine reported the node as unreachable before the pod was deleted."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of one pass about one machine's pods, besides their own statuses."""

    unreachable: Unreachable = field(default_factory=Unreachable)
    absent: tuple[Absent, ...] = ()
    sealed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By node, the uids of the pods that the sealed Lease of its guardian lists."""
    promised: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By node with a guardian, the uids of the pods that it promised to end."""
    virtual: frozenset[str] = frozenset()
    """Nodes with a guardian that promises nothing because they may be virtual machines."""


NOTHING: Final = Evidence()
"""For callers that have only the pods' own statuses."""


def verdict(pod: Object | Absent | None, evidence: Evidence = NOTHING) -> Verdict:
    """Return Alive, Over or Unknown for a pod's containers; None is over."""
    if pod is None:
        return Over(Witness.ABSENCE)
    if isinstance(pod, Absent):
        return SEALED if _is_sealed(pod.node, pod.uid, evidence) else _of_absent(pod, evidence)
    if pod_state.is_over(pod):
        return Over(Witness.KUBELET)
    if _is_sealed(pod_state.node_of(pod), uid_of(pod), evidence):
        return SEALED
    if pod_state.node_of(pod) in evidence.unreachable.fenced:
        return FENCED
    return _of_unreachable(pod_state.node_of(pod), evidence) or ALIVE


def may_run(pod: Object | Absent | None, evidence: Evidence = NOTHING) -> bool:
    """Return whether containers of a pod may run: the verdict is not Over."""
    return not isinstance(verdict(pod, evidence), Over)


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of a machine's own pod with its node, and what proves it."""

    node: str
    by: Witness


def loss_of(own: Object | None, evidence: Evidence) -> Loss | None:
    """Return the Loss of the machine's own pod (None if absent) with its node, if a person or a guardian states it; else None."""
    if own is not None:
        judged = [(pod_state.node_of(own), verdict(own, evidence))]
    else:
        judged = [(each.node, verdict(each, evidence)) for each in evidence.absent if not each.migration]
    return next((Loss(node, stated.by) for node, found in judged for stated in (FENCED, SEALED) if found == stated), None)


def seconds_to_next_look(found: Unknown) -> float:
    """Return the seconds until the next pass about an absent pod with this verdict, because no event of its node triggers one."""
    return LOST_LOOK_SECONDS if found.seconds is None else found.seconds


def _is_sealed(node: str, uid: str, evidence: Evidence) -> bool:
    return uid in evidence.sealed.get(node, ())


def _of_absent(pod: Absent, evidence: Evidence) -> Verdict:
    unreachable = _of_unreachable(pod.node, evidence)
    if unreachable == LOST:
        by_person = pod.went_with_node and pod.node not in evidence.unreachable.fenced_before
        return FENCED if by_person or pod.node in evidence.unreachable.off else LOST
    return unreachable or (Unknown(Decider.TIME, pod.lingers) if pod.lingers else Over(Witness.TIME))


def _of_unreachable(node: str, evidence: Evidence) -> Unknown | None:
    if node in evidence.unreachable.whole:
        return LOST
    left = evidence.unreachable.of_kubelet.get(node)
    return None if left is None else Unknown(Decider.KUBELET, left)
