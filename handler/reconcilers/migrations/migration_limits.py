"""Limits of time of a migration that is under way, and what is done beyond them: by ``status.options`` of the Migration. Pure.

Seconds count from the moment at which virt-handler of the source wrote ``Running``, so that its restart changes nothing. A Migration
without options, of a virt-controller of the release before, has no limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Literal

from apiserver.apis.meta import quantity, times
from apiserver.apis.meta.objects import dig
from apiserver.apis.virt.lifecycle import migration_attempts, phases, progress
from handler.reconcilers.migrations import migration_progress
from launcher.protocol import messages

Object = Mapping[str, Any]
Verdict = Literal["go on", "pause", "abort"]

STALL_SECONDS: Final = 150
"""Without a byte of the guest having moved: libvirt, QEMU or the way is stuck, and does not know it."""


MILLISECONDS: Final = 1000
BOUND_SHARE: Final = 0.75
"""Of the bandwidth: a mean rate of so much is bounded by it, since a migration takes some seconds to begin and to end."""


def request(migration: Object) -> messages.Migrate:
    """Return what the launcher is to be told of a migration that is to begin."""
    options = dig(migration, "status", "options") or {}
    return messages.Migrate(
        migration_attempts.uid_of(migration),
        bandwidth_bytes=quantity.parse(str(_given(options.get("bandwidth"), 0))).bytes,
        max_downtime_milliseconds=_given(options.get("maxDowntimeMilliseconds"), 0),
        parallel_connections=_given(options.get("parallelConnections"), 1),
        auto_converge=bool(options.get("allowAutoConverge")),
        relays_disks=True,
    )


def verdict_of(migration: Object, launcher: messages.Status, now: datetime, stalled_seconds: float, *, can_pause: bool) -> Verdict:
    """Return what is to be done about a migration that is under way.

    Args:
        migration: the Migration.
        launcher: what virt-launcher of the source says.
        now: by the clock that wrote ``Running``.
        stalled_seconds: how long no byte has moved.
        can_pause: whether that virt-launcher knows the request.
    """
    if stalled_seconds >= STALL_SECONDS:
        return "abort"
    limit, elapsed = _limit(migration), _elapsed(migration, now)
    if limit is None or elapsed < limit:
        return "go on"
    if not (dig(migration, "status", "options", "allowPause") and can_pause) or elapsed >= 2 * limit:
        return "abort"
    return "pause" if launcher.domain is not None and launcher.domain.state == "running" else "go on"


def cause(migration: Object, known: messages.MigrationStatus, now: datetime, stalled_seconds: float) -> str:
    """Return why a migration was aborted, as its user is told; empty: not because of a limit."""
    limit, elapsed, known = _limit(migration), _elapsed(migration, now), _with_figures(known, migration)
    if stalled_seconds >= STALL_SECONDS:
        return "; ".join(filter(None, (f"timed out: nothing of the guest moved for {STALL_SECONDS} s", _moved(known))))
    if limit is None or elapsed < limit:
        return ""
    options = dig(migration, "status", "options") or {}
    paused = (
        f", and as long again paused (allowPause of {_origin(migration)})" if options.get("allowPause") and elapsed >= 2 * limit else ""
    )
    bound = _bound(options, known)
    found = (_moved(known), bound, "the guest writes memory as fast as it is sent" if known.iteration > 1 and not paused else "")
    advice = [*(("a higher bandwidth",) if bound else ()), *(("allowPause", "allowAutoConverge") if not paused else ())]
    may_help = f"{', '.join(advice)} or a longer completionTimeoutPerGiB" if advice else "a longer completionTimeoutPerGiB"
    return (
        f"timed out: the guest did not arrive within {limit} s (completionTimeoutPerGiB of {_origin(migration)}){paused}: "
        f"{'; '.join(filter(None, (*found, f'a MigrationPolicy with {may_help} may help')))}"
    )


def _bound(options: Object, known: messages.MigrationStatus) -> str:
    """Return that the bandwidth which is allowed bounds the rate; empty: there is none, or it is further from being reached."""
    allowed, elapsed = quantity.parse(str(_given(options.get("bandwidth"), 0))).bytes, known.elapsed_milliseconds
    sent = migration_progress.amounts(known)[1]
    if not allowed or elapsed < MILLISECONDS or sent * MILLISECONDS / elapsed < BOUND_SHARE * allowed:
        return ""
    return f"no more than {quantity.shown(allowed)} a second may be (bandwidth)"


def _with_figures(known: messages.MigrationStatus, migration: Object) -> messages.MigrationStatus:
    """Return what the launcher says, with the figures written last where it has none: libvirt has none of a job that was aborted."""
    if migration_progress.amounts(known)[0] > 0:
        return known
    told = {field: number for field, number in progress.of(migration).items() if isinstance(number, int)}
    return replace(
        known,
        elapsed_milliseconds=told.get("elapsedMilliseconds", 0),
        iteration=told.get("iteration", 0),
        data_total_bytes=told.get("totalBytes", 0),
        data_processed_bytes=told.get("processedBytes", 0),
        data_remaining_bytes=told.get("remainingBytes", 0),
    )


def _moved(known: messages.MigrationStatus) -> str:
    seconds = max(known.elapsed_milliseconds, 0) / 1000
    total, processed, remaining = migration_progress.amounts(known)
    if not total and not processed:
        return ""  # nobody has seen any figures
    rate = f", {quantity.shown(processed / seconds)} a second" if seconds >= 1 else ""
    return f"{quantity.shown(processed)} were sent{rate}, {quantity.shown(remaining)} of {quantity.shown(total)} remain"


def _origin(migration: Object) -> str:
    policy = dig(migration, "status", "policy")
    return f"MigrationPolicy {policy}" if policy else "the cluster's default"


def _limit(migration: Object) -> int | None:
    found = dig(migration, "status", "options", "completionTimeoutSeconds")
    return found if isinstance(found, int) and found > 0 else None


def _elapsed(migration: Object, now: datetime) -> float:
    """Return seconds since ``Running``; less than none before it."""
    stamps = dig(migration, "status", "phaseTransitionTimestamps") or []
    entered = [each["time"] for each in stamps if each.get("phase") == phases.RUNNING]
    return (now - times.parse(entered[-1])).total_seconds() if entered else -1.0


def _given(value: Any, default: int) -> Any:  # noqa: ANN401 - any JSON value
    return default if value is None else value
