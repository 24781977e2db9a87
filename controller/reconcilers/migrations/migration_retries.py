"""Decides how another attempt of a Migration follows (``apis.virt.lifecycle.migration_attempts``). Pure.

It begins when nothing of the previous target pod runs: QEMU may have the guest's disks open there, and its lock would stop the guest in
the next target. If that pod does not end, the Migration fails. Between attempts the Migration is ``Pending`` and keeps its place in the
queue. The next target prefers another node.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, dig, is_deleting, name_of
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import departure, migration_attempts, phases, progress
from apiserver.apis.virt.lifecycle.migration_attempts import MAX_ATTEMPTS
from controller.reconcilers.pods import liveness
from controller.reconcilers.pods.liveness import NOTHING, Evidence

GRACE_SECONDS: Final = 5
END_SECONDS: Final = 60
MAX_MESSAGE: Final = 600
_OF_TARGET: Final = ("targetNode", "targetPod", "targetPodUID", "targetPodIPs", "targetAddress", "progress")
TARGET_SCHEDULED: Final = "TargetScheduled"
"""An attempt's target has a node, if the scheduling time is unlimited."""
_OF_ATTEMPT: Final = (departure.RELEASED, progress.CONVERGING, TARGET_SCHEDULED)


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No further attempt: the Migration fails."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class AwaitEnd:
    """The target pod may run: delete ``to_delete`` (None: nothing), and look again after ``seconds``."""

    message: str
    seconds: float
    to_delete: Object | None
    """Unless it is being deleted with a short grace period."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Another attempt follows after a pause, which begins when the caller writes ``status``."""

    status: Object
    """Without the previous attempt's conditions."""
    message: str


Step: TypeAlias = GiveUp | AwaitEnd | Retry


def step(migration: Object, target: Object | None, now: datetime, back_off: tuple[int, ...], evidence: Evidence = NOTHING) -> Step:
    """Return what follows a failed attempt: AwaitEnd, GiveUp after ``MAX_ATTEMPTS`` or if the target pod does not end in time, or Retry.

    ``migration`` includes that attempt among the failed ones; ``target`` is None if gone; ``back_off`` has ``MAX_ATTEMPTS - 1`` values:
    the seconds before each further attempt. ``evidence`` may prove that the target does not run.
    """
    number, failure = migration_attempts.number_of(migration), migration_attempts.failure_of(migration) or {}
    reason, message = str(failure.get("reason") or "Failed"), one_line(str(failure.get("message") or "no reason given"), MAX_MESSAGE)
    if number >= MAX_ATTEMPTS:
        return GiveUp(reason, f"{message}; this was the last of {MAX_ATTEMPTS} attempts")
    told = f"attempt {number} of {MAX_ATTEMPTS} failed: {message}"
    if target is not None and liveness.may_run(target, evidence):
        left = _left(target, now)
        if left <= 0:
            return GiveUp("TargetPodNotEnded", f"{told}; no further attempt can start, because target pod {name_of(target)} does not end")
        return AwaitEnd(
            f"{told}; the next attempt starts when target pod {name_of(target)} has ended", left, target if is_to_delete(target) else None
        )
    told = f"{told}; the next attempt starts in {back_off[number - 1]} s"
    status = {key: value for key, value in phases.enter(migration["status"], phases.PENDING, now).items() if key not in _OF_TARGET}
    conditions = [each for each in status.get("conditions") or () if each.get("type") not in _OF_ATTEMPT]
    return Retry({**status, "conditions": conditions, "attempt": number + 1, "message": told}, told)


def retried_at(migration: Object) -> str | None:
    """Return when the previous attempt was over (RFC 3339); None for the first attempt."""
    if migration_attempts.number_of(migration) <= 1:
        return None
    stamps = dig_migration(migration, "status", "phaseTransitionTimestamps") or ()
    return next((str(each["time"]) for each in reversed(stamps) if each.get("phase") == phases.PENDING), None)


def back_off_left(migration: Object, now: datetime, back_off: tuple[int, ...]) -> float:
    """Return how many more seconds the next attempt must wait; 0 if it may begin, or has begun."""
    since, number = retried_at(migration), migration_attempts.number_of(migration)
    if since is None or phases.phase_of(migration) != phases.PENDING:
        return 0.0
    seconds = back_off[min(number - 2, len(back_off) - 1)]
    left = seconds - (now - times.parse(since)).total_seconds()
    return min(max(left, 0.0), float(seconds))


def _left(target: Object, now: datetime) -> float:
    asked = dig(target, "metadata", "deletionTimestamp")
    if not is_deleting(target) or is_to_delete(target) or asked is None:
        return float(GRACE_SECONDS + END_SECONDS)
    return END_SECONDS - (now - times.parse(str(asked))).total_seconds()


def is_to_delete(target: Object) -> bool:
    """Return whether to delete the pod: its deletion has not begun, or has a grace period over ``GRACE_SECONDS``."""
    grace = dig(target, "metadata", "deletionGracePeriodSeconds")
    return not is_deleting(target) or (isinstance(grace, int) and grace > GRACE_SECONDS)
