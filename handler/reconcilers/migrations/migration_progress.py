"""Converts virt-launcher's statistics to ``Migration.status.progress``, and decides whether a migration converges. Pure.

Numbers and writes are limited, because a compromised virt-launcher reports anything at any rate.

A migration does not converge if the guest writes memory at :data:`KEEPS_UP` of the transfer rate, in :data:`SAMPLES` consecutive reports
from the second iteration on, or if :data:`OFTEN` times its size was sent. It converges again after as many reports to the contrary.  The
transfer rate is computed here, because QEMU's covers only a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import objects, quantity, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import progress
from handler.reconcilers.limits import DEFAULT
from launcher.protocol import messages

SAMPLES: Final = 10
"""Five seconds: virt-launcher reports twice a second."""
KEEPS_UP: Final = 0.8
"""Share of the transfer rate: below it, each iteration is at least a fifth shorter than the last one."""
OFTEN: Final = 3
MAX_NUMBER: Final = (1 << 63) - 1
"""An int64's."""


@dataclass(frozen=True, slots=True)
class Course:
    """What :func:`plan` keeps of a migration's reports; begin with ``Course()``, also after a restart, which costs an additional write."""

    tried: float | None = None
    """Start of the last write, in monotonic seconds."""
    elapsed: int = -1
    """``elapsed_milliseconds`` of the newest report, which identifies it."""
    row: int = 0
    """Consecutive reports of a guest that keeps up with the transfer; negative: of one that does not."""
    recent: tuple[tuple[int, int], ...] = ()
    """Milliseconds and processed bytes of the latest reports."""


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from a migration's new report: the Course for the next one; a status to write now, or the seconds until then."""

    course: Course
    status: Object | None = None
    """To write now."""
    again: float | None = None
    """Seconds until these statistics may be written."""
    warning: str = ""
    """Why it does not converge, for users."""


def plan(
    migration: Mapping[str, Any],
    report: messages.MigrationStatus,
    course: Course,
    seconds: float,
    now: datetime,
    *,
    write_seconds: float = DEFAULT.progress_seconds,
) -> Step:
    """Return the Step: the next Course, and the status to write now, or the seconds until then; ``seconds`` is of ``Course``'s clock."""
    course = _counted(course, report)
    old: Object = dict(migration.get("status") or {})
    status = {**old, "progress": figures(report, now)}
    condition = _condition(migration, report, course)
    if condition is not None:
        status = objects.with_status_condition(status, condition, now=times.to_rfc3339(now))
    if condition is None and _without_time(status["progress"]) == _without_time(old.get("progress") or {}):
        return Step(course)
    if course.tried is not None and (left := course.tried + write_seconds - seconds) > 0:
        return Step(course, again=left)
    warning = condition["message"] if condition is not None and condition["status"] == "False" else ""
    return Step(replace(course, tried=seconds), status, warning=warning)


def figures(report: messages.MigrationStatus, now: datetime) -> Object:
    """Return ``status.progress`` for this report, during the migration or at its end."""
    total, processed, remaining = amounts(report)
    found = {
        "totalBytes": total,
        "processedBytes": processed,
        "remainingBytes": remaining,
        "bytesPerSecond": _bounded(report.bytes_per_second),
        "dirtyBytesPerSecond": _bounded(report.dirty_bytes_per_second),
        "iteration": _bounded(report.iteration),
        "elapsedMilliseconds": _bounded(report.elapsed_milliseconds),
    }
    if report.state == "running" and (expected := _expected(found)) is not None:
        found["expectedRemainingSeconds"] = expected
    if report.direction == "incoming" and report.downtime_milliseconds > 0:  # the source reports only an estimate
        found["downtimeMilliseconds"] = _bounded(report.downtime_milliseconds)
    return {**found, "lastUpdateTime": times.to_rfc3339(now)}


def at_end(report: messages.MigrationStatus | None, now: datetime, before: Mapping[str, Any] | None = None) -> dict[str, Object]:
    """Return the final status' member ``progress``; an empty dict without statistics, so the last ones stay.

    ``before``: the present ``status.progress``; it includes copied disks, and the target's report only memory.
    """
    if report is None or amounts(report)[0] == 0:
        return {}
    found = figures(report, now)
    told = before or {}
    if report.direction == "incoming" and int(told.get("totalBytes") or 0) > found["totalBytes"]:
        found["totalBytes"] = told["totalBytes"]
        found["processedBytes"] = max(found["processedBytes"], int(told.get("processedBytes") or 0))
    return {"progress": found}


def _counted(course: Course, report: messages.MigrationStatus) -> Course:
    if report.elapsed_milliseconds == course.elapsed:
        return course
    newest = (_bounded(report.elapsed_milliseconds), amounts(report)[1])
    course = replace(course, elapsed=report.elapsed_milliseconds, recent=(*course.recent, newest)[-SAMPLES:])
    if report.iteration < 2:
        return replace(course, row=0)
    if 0 < report.dirty_bytes_per_second >= KEEPS_UP * _moved(course, report):
        return replace(course, row=max(course.row, 0) + 1)
    return replace(course, row=min(course.row, 0) - 1)


def _moved(course: Course, report: messages.MigrationStatus) -> int:
    (begin, before), (end, after) = course.recent[0], course.recent[-1]
    return (after - before) * 1000 // (end - begin) if end > begin and after > before else _bounded(report.bytes_per_second)


def _condition(migration: Mapping[str, Any], report: messages.MigrationStatus, course: Course) -> Object | None:
    """Return the condition Converging if its status changes; None if it stays.

    Later reports do not change its message, which would cost writes.
    """
    before = objects.condition(dig_migration(migration, "status", "conditions"), progress.CONVERGING)
    is_behind = before is not None and before.get("status") == "False"
    total, processed, _ = amounts(report)
    # Memory alone for a guest with copied disks, which are sent once.
    often = [(processed, total), (report.memory_processed_bytes, report.memory_total_bytes)]
    moved = _moved(course, report) if course.recent else report.bytes_per_second
    rates = f"the guest writes its memory at {_rate(report.dirty_bytes_per_second)}, and {_rate(moved)} are sent"
    if any(0 < whole <= sent // OFTEN for sent, whole in often):
        return (
            None
            if is_behind
            else _made(migration, "False", progress.SENT_REPEATEDLY, f"{OFTEN} times the guest's memory was sent: {rates}")
        )
    if course.row >= SAMPLES:
        return None if is_behind else _made(migration, "False", progress.WRITES_FASTER, rates)
    if course.row <= -SAMPLES and is_behind:
        return _made(migration, "True", progress.CATCHES_UP, rates)
    return None


def _made(migration: Mapping[str, Any], status: str, reason: str, message: str) -> Object:
    return objects.new_condition(migration, progress.CONVERGING, status, reason, message)


def amounts(report: messages.MigrationStatus) -> tuple[int, int, int]:
    """Return a migration's bytes in total, processed and remaining, with copied disks; from an older virt-launcher, of memory alone."""
    if report.data_total_bytes > 0:
        found = report.data_total_bytes, report.data_processed_bytes, report.data_remaining_bytes
    else:
        found = report.memory_total_bytes, report.memory_processed_bytes, report.memory_remaining_bytes
    total, processed, remaining = map(_bounded, found)
    return total, processed, remaining


def _expected(found: Mapping[str, int]) -> int | None:
    gained = found["bytesPerSecond"] - found["dirtyBytesPerSecond"]
    return -(-found["remainingBytes"] // gained) if gained > 0 else None


def _bounded(number: int) -> int:
    return min(max(number, 0), MAX_NUMBER)


def _rate(bytes_per_second: int) -> str:
    return f"{quantity.shown(_bounded(bytes_per_second))}/s"


def _without_time(found: Mapping[str, Any]) -> Object:
    return {field: value for field, value in found.items() if field != "lastUpdateTime"}
