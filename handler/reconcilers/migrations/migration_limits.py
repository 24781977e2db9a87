"""Time limits of a running migration, from ``status.options``, and their consequences. Pure.

Seconds count from the source virt-handler's write of ``Running``. A Migration of an older virt-controller, without options, has no limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Literal

from apiserver.apis.meta import quantity, times
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import migration_attempts, phases, progress
from handler.reconcilers.migrations import migration_progress
from launcher.protocol import messages

Object = Mapping[str, Any]
Verdict = Literal["go on", "pause", "abort"]

STALL_SECONDS: Final = 150
"""Without any progress: libvirt, QEMU or the network hangs without an error."""


MILLISECONDS: Final = 1000
BOUND_SHARE: Final = 0.75
"""Average share of the bandwidth limit from which on it is the cause: a migration takes some seconds to begin and end."""


def request(migration: Object) -> messages.Migrate:
    """Return the request that has virt-launcher begin this migration."""
    options = dig_migration(migration, "status", "options") or {}
    return messages.Migrate(
        migration_attempts.uid_of(migration),
        bandwidth_bytes=quantity.parse(str(_given(options.get("bandwidth"), 0))).bytes,
        max_downtime_milliseconds=_given(options.get("maxDowntimeMilliseconds"), 0),
        parallel_connections=_given(options.get("parallelConnections"), 1),
        auto_converge=bool(options.get("allowAutoConverge")),
        relays_disks=True,
        relays_made_disks=True,
    )


def verdict_of(migration: Object, launcher: messages.Status, now: datetime, stalled_seconds: float, *, can_pause: bool) -> Verdict:
    """Return what to do with a running migration: "abort" if it stalled or is over its limit, else "go on".

    With ``allowPause``, "pause" a running guest over the limit; "abort" over twice the limit. ``now`` is of the clock that wrote
    ``Running``; ``stalled_seconds``: since the last progress; ``can_pause``: virt-launcher can.
    """
    if stalled_seconds >= STALL_SECONDS:
        return "abort"
    limit, elapsed = _limit(migration), _elapsed(migration, now)
    if limit is None or elapsed < limit:
        return "go on"
    if not (dig_migration(migration, "status", "options", "allowPause") and can_pause) or elapsed >= 2 * limit:
        return "abort"
    return "pause" if launcher.domain is not None and launcher.domain.state == "running" else "go on"


def cause(migration: Object, report: messages.MigrationStatus, now: datetime, stalled_seconds: float) -> str:
    """Return a message for users why a limit aborted a migration; empty: no limit did."""
    limit, elapsed, report = _limit(migration), _elapsed(migration, now), _with_figures(report, migration)
    if stalled_seconds >= STALL_SECONDS:
        return "; ".join(filter(None, (f"timed out: no guest memory was transferred for {STALL_SECONDS} s", _moved(report))))
    if limit is None or elapsed < limit:
        return ""
    options = dig_migration(migration, "status", "options") or {}
    paused = (
        f", and the same time again while paused (allowPause of {_origin(migration)})"
        if options.get("allowPause") and elapsed >= 2 * limit
        else ""
    )
    bound = _bound(options, report)
    found = (
        _moved(report),
        bound,
        "the guest writes memory as fast as the migration sends it" if report.iteration > 1 and not paused else "",
    )
    advice = [*(("a higher bandwidth",) if bound else ()), *(("allowPause", "allowAutoConverge") if not paused else ())]
    may_help = f"{', '.join(advice)} or a longer completionTimeoutPerGiB" if advice else "a longer completionTimeoutPerGiB"
    return (
        f"timed out: the migration did not complete within {limit} s (completionTimeoutPerGiB of {_origin(migration)}){paused}: "
        f"{'; '.join(filter(None, (*found, f'try a MigrationPolicy with {may_help}')))}"
    )


def _bound(options: Object, report: messages.MigrationStatus) -> str:
    allowed, elapsed = quantity.parse(str(_given(options.get("bandwidth"), 0))).bytes, report.elapsed_milliseconds
    sent = migration_progress.amounts(report)[1]
    if not allowed or elapsed < MILLISECONDS or sent * MILLISECONDS < BOUND_SHARE * allowed * elapsed:
        return ""
    return f"the limit is {quantity.shown(allowed)} per second (bandwidth)"


def _with_figures(report: messages.MigrationStatus, migration: Object) -> messages.MigrationStatus:
    """Return the launcher's report, with the last written statistics if it has none, as for an aborted job."""
    if migration_progress.amounts(report)[0] > 0:
        return report
    told = {field: number for field, number in progress.of(migration).items() if isinstance(number, int)}
    return replace(
        report,
        elapsed_milliseconds=told.get("elapsedMilliseconds", 0),
        iteration=told.get("iteration", 0),
        data_total_bytes=told.get("totalBytes", 0),
        data_processed_bytes=told.get("processedBytes", 0),
        data_remaining_bytes=told.get("remainingBytes", 0),
    )


def _moved(report: messages.MigrationStatus) -> str:
    seconds = max(report.elapsed_milliseconds, 0) / 1000
    total, processed, remaining = migration_progress.amounts(report)
    if not total:
        return ""
    rate = f", {quantity.shown(processed / seconds)} a second" if seconds >= 1 else ""
    return f"{quantity.shown(processed)} sent{rate}, {quantity.shown(remaining)} of {quantity.shown(total)} remaining"


def _origin(migration: Object) -> str:
    policy = dig_migration(migration, "status", "policy")
    return f"MigrationPolicy {policy}" if policy else "the cluster's default"


def _limit(migration: Object) -> int | None:
    found = dig_migration(migration, "status", "options", "completionTimeoutSeconds")
    return found if isinstance(found, int) and found > 0 else None


def _elapsed(migration: Object, now: datetime) -> float:
    stamps = dig_migration(migration, "status", "phaseTransitionTimestamps") or []
    entered = [each["time"] for each in stamps if each.get("phase") == phases.RUNNING]
    return (now - times.parse(entered[-1])).total_seconds() if entered else -1.0


def _given(value: Any, default: int) -> Any:  # noqa: ANN401 - any JSON value
    return default if value is None else value
