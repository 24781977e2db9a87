"""The time for which containers may outlive the object of their pod. No I/O.

A pod that a user deletes by force is gone from the API at once, but its kubelet ends its containers within the pod's grace period. Until
then a second pod would be a second QEMU. virt-handler of the node writes the end of the guest as soon as it sees it; this module says how
long to wait for that. A migration's target has no such writer, and the guest may have arrived there. This module measures times, and reads
no clock. A process that has just begun waits for the whole time. The time starts again when a kubelet that was silent reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.objects import NamespacedName, Object, dig, key_of, uid_of
from controller.reconcilers.pods import liveness, pod_state

KUBELET_SECONDS: Final = 15.0
"""For a kubelet to hear that a pod is gone, and to see its containers ended after their last signal."""
TARGET_MAY_RUN: Final = "TargetMayRun"
"""Reason of what waits because the target of a migration was deleted by force, and the guest may run in it."""


@dataclass(slots=True)
class _Known:
    pod_uid: str
    grace_seconds: float
    is_over: bool = False
    absent_since: float | None = None
    is_held: bool = False
    """Its kubelet was silent at the last look: nobody ended the containers."""


class Absences:
    """The grace periods of the pods that statuses name, and since when these pods are absent: of each object the one that it names."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        """``elapsed`` returns seconds that only grow, since whenever."""
        self._elapsed = elapsed
        self._known: dict[NamespacedName, _Known] = {}
        """By machine, or by Migration."""

    def present(self, obj: Object, pod: Object) -> None:
        """Take note that the pod is there, alive or over. Its grace period is its own: the machine's may be edited after it was made."""
        grace = float(dig(pod, "spec", "terminationGracePeriodSeconds") or 0)
        self._known[key_of(obj)] = _Known(uid_of(pod), grace, not liveness.may_run(pod) or not pod_state.node_of(pod))

    def may_run(self, obj: Object, pod_uid: str) -> bool:
        """Return whether this pod was seen, on a node, and not seen to end."""
        known = self._known.get(key_of(obj))
        return known is not None and known.pod_uid == pod_uid and not known.is_over

    def left(self, obj: Object, pod_uid: str, grace_seconds: float) -> float:
        """Return for how many seconds more containers of this absent pod may run; ``grace_seconds`` is taken for one never seen here."""
        known = self._known.get(key_of(obj))
        if known is None or known.pod_uid != pod_uid:
            known = self._known[key_of(obj)] = _Known(pod_uid, grace_seconds)
        if known.is_over:
            return 0.0
        if known.absent_since is None or known.is_held:
            known.absent_since, known.is_held = self._elapsed(), False
        return max(0.0, known.absent_since + known.grace_seconds + KUBELET_SECONDS - self._elapsed())

    def hold(self, obj: Object) -> None:
        """Take note that the kubelet of this absent pod is silent: the time begins anew once it is heard."""
        if (known := self._known.get(key_of(obj))) is not None:
            known.is_held = True

    def forget(self, key: NamespacedName) -> None:
        """Drop what is known of an object that has no pod any more."""
        self._known.pop(key, None)

    def __len__(self) -> int:
        return len(self._known)
