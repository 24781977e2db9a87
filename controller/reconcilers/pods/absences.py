"""How long containers may outlive their deleted pod. No I/O.

A pod deleted by force leaves the API at once, but its kubelet takes up to the grace period to end its containers. Only a report of the
node's virt-handler ends this wait earlier, and none comes for a migration's target. Times are measured, not read from clocks. A new
process waits for the whole time, which restarts when an unreachable kubelet reports again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.objects import NamespacedName, Object, dig, key_of, uid_of
from controller.reconcilers.pods import liveness, pod_state

KUBELET_SECONDS: Final = 15.0
"""A kubelet notices a deleted pod, and sees its containers end after SIGKILL."""
CUT_OFF_SECONDS: Final = 60.0
"""Time after which a kubelet that is cut off counts as unreachable.

kube-controller-manager takes 50 s (``--node-monitor-grace-period``) and up to 5 s more (``--node-monitor-period``)."""
TARGET_MAY_RUN: Final = "TargetMayRun"
"""The target was deleted by force and may run the guest."""


def lingering_seconds(grace_seconds: float) -> float:
    """Return how many seconds containers of a deleted pod may run, if its kubelet never counts as unreachable in this time.

    A kubelet that was cut off for less than :data:`CUT_OFF_SECONDS` sees the deletion late, and then grants the whole grace period.
    """
    return CUT_OFF_SECONDS + grace_seconds + KUBELET_SECONDS


@dataclass(slots=True)
class _Known:
    pod_uid: str
    grace_seconds: float
    is_over: bool = False
    absent_since: float | None = None
    is_held: bool = False
    """The kubelet was unreachable at the last check, so nothing ended the containers."""
    went_first: bool = False


class Absences:
    """Tells how long the containers of a deleted pod may still run.

    That is longer than its grace period: :func:`lingering_seconds` from when it was first missed. It keeps the last pod of each
    machine or Migration. ``elapsed`` returns monotonic seconds.
    """

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._known: dict[NamespacedName, _Known] = {}

    def present(self, obj: Object, pod: Object) -> None:
        """Record that the pod of ``obj`` exists, whether it may run, and its grace period."""
        grace = float(dig(pod, "spec", "terminationGracePeriodSeconds") or 0)
        self._known[key_of(obj)] = _Known(uid_of(pod), grace, not liveness.may_run(pod) or not pod_state.node_of(pod))

    def may_run(self, obj: Object, pod_uid: str) -> bool:
        """Return whether this pod of ``obj`` was seen on a node and not seen to end."""
        known = self._known.get(key_of(obj))
        return known is not None and known.pod_uid == pod_uid and not known.is_over

    def left(self, obj: Object, pod_uid: str, grace_seconds: float) -> float:
        """Return how many more seconds containers of this deleted pod may run (:func:`lingering_seconds`); 0 if they ended.

        Time counts from the first call without the pod. ``grace_seconds`` is for a pod never seen.
        """
        known = self._known.get(key_of(obj))
        if known is None or known.pod_uid != pod_uid:
            known = self._known[key_of(obj)] = _Known(pod_uid, grace_seconds)
        if known.is_over:
            return 0.0
        if known.absent_since is None or known.is_held:
            known.absent_since, known.is_held = self._elapsed(), False
        return max(0.0, known.absent_since + lingering_seconds(known.grace_seconds) - self._elapsed())

    def hold(self, obj: Object) -> None:
        """Record that the kubelet of the deleted pod of ``obj`` is unreachable: the containers' time restarts when it reports."""
        if (known := self._known.get(key_of(obj))) is not None:
            known.is_held = True

    def note_report(self, obj: Object) -> None:
        """Record that the pod of ``obj`` was gone while its node reported, so its deletion does not state that the node is off."""
        if (known := self._known.get(key_of(obj))) is not None:
            known.went_first = True

    def went_first(self, obj: Object, pod_uid: str) -> bool:
        """Return whether ``obj``'s pod with this uid was seen to be gone while its node still reported."""
        known = self._known.get(key_of(obj))
        return known is not None and known.pod_uid == pod_uid and known.went_first

    def forget(self, key: NamespacedName) -> None:
        """Forget the pod of a machine or Migration."""
        self._known.pop(key, None)

    def __len__(self) -> int:
        return len(self._known)
