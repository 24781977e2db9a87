"""How long virt-controller waits for nodes, virt-handlers and launchers in each phase of a migration. Pure.

A compromised launcher may never answer or finish. From the target's preparation, time counts from ``PreparingTarget``, the last
timestamp that virt-controller writes itself. Before ``Running`` a migration that exceeds its limit ends. After that virt-controller cannot
know on which side the guest is, so the migration continues without its place in the queue.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, condition, dig
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import evictions, phases
from controller.reconcilers.migrations import migration_retries
from controller.reconcilers.pods import pod_state
from controller.reconcilers.settings import MigrationLimits

NODE_SECONDS: Final = 60
"""Time for the target of a migration caused by an eviction to get a node. Then the next guest gets its place.

Migrations created by users have ``MigrationLimits.scheduling_seconds``."""
START_SECONDS: Final = 300
"""Time for such a target to run once it has a node; its image may need to be pulled."""
RUN_SECONDS: Final = 900
"""The same for the target of a user's migration."""
PREPARE_SECONDS: Final = 120
"""For network and libvirtd, which takes a second if it works."""
BEGIN_SECONDS: Final = 300
"""Once the target is ready, the source's virt-handler begins, unless it is being replaced."""
END_SECONDS: Final = 300
"""To abort and report, beyond the time that the options allow."""
UNTOLD_SECONDS: Final = 3600
"""For options without a time, from an older virt-controller."""
SOURCE_UNKNOWN: Final = "SourceUnknown"
"""The machine's node does not report. The migration continues without its place in the queue."""
_MOVING: Final = frozenset({phases.TARGET_READY, phases.RUNNING})


def target_left(migration: Object, target: Object | None, now: datetime, limits: MigrationLimits, *, is_refused: bool) -> float | None:
    """Return how many seconds are left until the target pod must run, negative once late; None if it runs or nothing limits it.

    Time counts from the recorded start of the attempt; not before the target is created, unless that was refused. The time
    to run begins when the target got its node, at the latest when the scheduling time ends or, without one, when virt-controller records
    the node (:func:`is_to_note_node`). For a Migration that virt-controller created, all time counts from the start.
    """
    begun = migration_retries.retried_at(migration) or dig_migration(migration, "status", "startTime")
    if phases.phase_of(migration) in ("", phases.PENDING):
        if target is None and not is_refused:
            return None
    elif begun is None and (stamps := dig_migration(migration, "status", "phaseTransitionTimestamps")):
        begun = stamps[0]["time"]
    if begun is None or pod_state.is_running(target):
        return None
    has_node, waited = bool(pod_state.node_of(target)), ago(begun, now)
    if evictions.is_by_controller(migration):
        return (START_SECONDS if has_node else NODE_SECONDS) - waited
    if target is None or not has_node:
        return limits.scheduling_seconds - waited if limits.scheduling_seconds else None
    if not limits.scheduling_seconds:
        noted = condition(dig_migration(migration, "status", "conditions"), migration_retries.TARGET_SCHEDULED)
        return RUN_SECONDS - (ago(noted["lastTransitionTime"], now) if noted is not None else 0.0)
    return RUN_SECONDS - max(ago(pod_state.bound_at(target) or begun, now), waited - limits.scheduling_seconds)


def is_to_note_node(migration: Object, target: Object | None, limits: MigrationLimits) -> bool:
    """Return whether virt-controller must record when the target got a node: it does not run, and has no other limit or record."""
    is_timed = bool(limits.scheduling_seconds) or evictions.is_by_controller(migration) or pod_state.is_running(target)
    stored = condition(dig_migration(migration, "status", "conditions"), migration_retries.TARGET_SCHEDULED)
    return not is_timed and stored is None and bool(pod_state.node_of(target))


def begin_left(migration: Object, now: datetime) -> float | None:
    """Return how many more seconds a migration has to leave ``TargetReady``, counted from ``PreparingTarget``; None before that phase."""
    since = _since(migration)
    return None if since is None else PREPARE_SECONDS + BEGIN_SECONDS - ago(since, now)


def place_left(migration: Object, now: datetime) -> float | None:
    """Return for how many seconds a migration in ``TargetReady`` or ``Running`` keeps its place (negative: overdue).

    None in other phases, or without a start.
    """
    left = begin_left(migration, now) if phases.phase_of(migration) in _MOVING else None
    return None if left is None else left + _allowed(migration) + END_SECONDS


def is_overdue(migration: Object, now: datetime) -> bool:
    """Return whether the time of :func:`place_left` has passed, so another migration can have the place."""
    left = place_left(migration, now)
    return left is not None and left <= 0


def holds_place(migration: Object, now: datetime) -> bool:
    """Return whether an unfinished migration keeps its place: it is not overdue, and its source node is not reported as unreachable."""
    said = condition(dig_migration(migration, "status", "conditions"), "Succeeded") or {}
    return not is_overdue(migration, now) and said.get("reason") != SOURCE_UNKNOWN


def _allowed(migration: Object) -> int:
    options = dig_migration(migration, "status", "options")
    limit = dig(options, "completionTimeoutSeconds") if isinstance(options, dict) else None
    if not isinstance(limit, int) or limit <= 0:
        return UNTOLD_SECONDS
    return limit * 2 if dig(options, "allowPause") else limit


def ago(moment: str, now: datetime) -> float:
    """Return the seconds since ``moment`` (RFC 3339)."""
    return (now - times.parse(moment)).total_seconds()


def _since(migration: Object) -> str | None:
    stamps = dig_migration(migration, "status", "phaseTransitionTimestamps") or []
    found = [each["time"] for each in stamps if each.get("phase") == phases.PREPARING_TARGET]
    return str(found[-1]) if found else None
