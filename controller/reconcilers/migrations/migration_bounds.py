"""Bounds of each phase of a migration that has begun: how long virt-controller waits for nodes, virt-handlers and launchers. Pure.

A launcher that its guest has taken over need never answer, or never finish. Once the target is to be prepared, time counts from
``PreparingTarget``, whose moment virt-controller wrote itself: those of the later phases are the virt-handlers' words. Until ``Running``
nothing of the guest has moved, and what does not come that far ends. From then on nobody else can say on which side the guest is, so such
a migration goes on, and only its place in the queue is another's.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, condition, dig
from apiserver.apis.virt.lifecycle import evictions, phases
from controller.reconcilers.migrations import migration_retries
from controller.reconcilers.pods import pod_state
from controller.reconcilers.settings import MigrationLimits

NODE_SECONDS: Final = 60
"""For the target of a migration that an eviction caused to have a node. Beyond it, the next guest's turn has come: there are only so many
such migrations at a time (``controller.evictions``), and this one would begin whenever there is room, days after the drain. For those that
people made, ``MigrationLimits.scheduling_seconds``."""
START_SECONDS: Final = 300
"""For such a target to run once it has a node: its image may have to be pulled."""
RUN_SECONDS: Final = 900
"""For the target of a migration that people made to run, from when it has a node."""
PREPARE_SECONDS: Final = 120
"""For virt-handler of the target to get network and libvirtd ready, which takes a second: beyond it, it does not work there."""
BEGIN_SECONDS: Final = 300
"""For virt-handler of the source to begin once the target is ready, which takes a moment: it may be just then that it is replaced."""
END_SECONDS: Final = 300
"""For a migration to be ended by the virt-handlers, beyond the time that its options allow: an abort and the last words of both sides."""
UNTOLD_SECONDS: Final = 3600
"""For one whose options say no time: it was begun by a virt-controller of an earlier release."""
SOURCE_UNKNOWN: Final = "SourceUnknown"
"""Reason in ``Succeeded`` of one whose machine is on a node that does not report: as in the queue it holds no place, and goes on."""
_MOVING: Final = frozenset({phases.TARGET_READY, phases.RUNNING})


def target_left(migration: Object, target: Object | None, now: datetime, limits: MigrationLimits, *, is_refused: bool) -> float | None:
    """Return for how many seconds more a target is waited for until it runs; None where nothing bounds that.

    They count from when its turn came, as virt-controller wrote that. One without a target that nobody refused is tried first: it may have
    waited in the queue, or virt-controller may have been away. When the target got its node is the word of that node, which may say it
    again and again: it counts for no later than the end of the time to find one, and where that has no end virt-controller's own word does
    (:func:`is_to_note_node`).
    """
    begun = migration_retries.retried_at(migration) or dig(migration, "status", "startTime")
    if phases.phase_of(migration) in ("", phases.PENDING):
        if target is None and not is_refused:
            return None
    elif begun is None and (stamps := dig(migration, "status", "phaseTransitionTimestamps")):
        begun = stamps[0]["time"]
    if begun is None or pod_state.is_running(target):
        return None
    has_node, ago = bool(pod_state.node_of(target)), _ago(begun, now)
    if evictions.is_by_controller(migration):
        return (START_SECONDS if has_node else NODE_SECONDS) - ago
    if target is None or not has_node:
        return limits.scheduling_seconds - ago if limits.scheduling_seconds else None
    if not limits.scheduling_seconds:
        noted = condition(dig(migration, "status", "conditions"), migration_retries.TARGET_SCHEDULED)
        return RUN_SECONDS - (_ago(noted["lastTransitionTime"], now) if noted is not None else 0.0)
    return RUN_SECONDS - max(_ago(pod_state.bound_at(target) or begun, now), ago - limits.scheduling_seconds)


def is_to_note_node(migration: Object, target: Object | None, limits: MigrationLimits) -> bool:
    """Return whether to write down that the target has a node: nobody else tells when that was, but the node itself."""
    is_timed = bool(limits.scheduling_seconds) or evictions.is_by_controller(migration) or pod_state.is_running(target)
    known = condition(dig(migration, "status", "conditions"), migration_retries.TARGET_SCHEDULED)
    return not is_timed and known is None and bool(pod_state.node_of(target))


def begin_left(migration: Object, now: datetime) -> float | None:
    """Return for how many seconds more a migration may be ``TargetReady``; None where it is not known since when."""
    since = _since(migration)
    return None if since is None else PREPARE_SECONDS + BEGIN_SECONDS - _ago(since, now)


def place_left(migration: Object, now: datetime) -> float | None:
    """Return for how many seconds more a migration in the hands of the virt-handlers holds its place; None: no time bounds that."""
    left = begin_left(migration, now) if phases.phase_of(migration) in _MOVING else None
    return None if left is None else left + _allowed(migration) + END_SECONDS


def is_overdue(migration: Object, now: datetime) -> bool:
    """Return whether a migration has had its time, and more, so that its place is another's."""
    left = place_left(migration, now)
    return left is not None and left <= 0


def holds_place(migration: Object, now: datetime) -> bool:
    """Return whether an unfinished migration holds its place, by what is written in it: it has time left, and its node reports."""
    said = condition(dig(migration, "status", "conditions"), "Succeeded") or {}
    return not is_overdue(migration, now) and said.get("reason") != SOURCE_UNKNOWN


def _allowed(migration: Object) -> int:
    """Return the seconds that the options allow, as virt-controller wrote them, with those of a pause."""
    options = dig(migration, "status", "options")
    limit = dig(options, "completionTimeoutSeconds") if isinstance(options, dict) else None
    if not isinstance(limit, int) or limit <= 0:
        return UNTOLD_SECONDS
    return limit * 2 if dig(options, "allowPause") else limit


def _ago(moment: str, now: datetime) -> float:
    return (now - times.parse(moment)).total_seconds()


def _since(migration: Object) -> str | None:
    """Return when virt-controller gave the present attempt out of its hands."""
    stamps = dig(migration, "status", "phaseTransitionTimestamps") or []
    found = [each["time"] for each in stamps if each.get("phase") == phases.PREPARING_TARGET]
    return str(found[-1]) if found else None
