"""The progress of a migration: virt-launcher's figures as ``Migration.status.progress``, and whether it converges. Pure.

virt-launcher says figures twice a second, and one that its guest has taken over says what it likes, as often as it is heard. So numbers
are bounded, and written at most every ``write_seconds``, whatever became of the write before.

A migration does not converge when the guest writes its memory at :data:`KEEPS_UP` of the rate at which it is moved, in :data:`SAMPLES`
figures in a row from the second iteration on, or when :data:`OFTEN` times as much was sent as there is. It converges again when as many
figures in a row say so. QEMU counts a page as written again once for each time that it is sent, so however fast a guest writes, its rate is
never above that of what is sent, heads of pages included; and what QEMU says is moved is of a tenth of a second, so it is counted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import objects, quantity, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import progress
from handler.reconcilers.limits import DEFAULT
from launcher.protocol import messages

SAMPLES: Final = 10
"""Five seconds of figures."""
KEEPS_UP: Final = 0.8
"""A share of what is moved: with less, each iteration is shorter than the one before by a fifth and more."""
OFTEN: Final = 3
MAX_NUMBER: Final = (1 << 63) - 1
"""Of an int64."""


@dataclass(frozen=True, slots=True)
class Course:
    """Course of a migration between two looks. Whoever was restarted begins anew: a write more, a condition later."""

    tried: float | None = None
    """Time at which a write was last begun, in seconds of a clock that never goes back; None: never."""
    elapsed: int = -1
    """``elapsed_milliseconds`` of the newest figures, which tell them from those before."""
    row: int = 0
    """Figures in a row that say that the guest keeps up with what is moved; below 0: that say that it does not."""
    recent: tuple[tuple[int, int], ...] = ()
    """Of the latest figures: milliseconds, and bytes processed by then."""


@dataclass(frozen=True, slots=True)
class Step:
    """Step that follows new figures."""

    course: Course
    status: Object | None = None
    """The Migration's status to write now; None: nothing."""
    again: float | None = None
    """Seconds until these figures may be written, if there are no newer ones by then."""
    warning: str = ""
    """For people, with this write: why it does not converge."""


def plan(
    migration: Mapping[str, Any],
    known: messages.MigrationStatus,
    course: Course,
    seconds: float,
    now: datetime,
    *,
    write_seconds: float = DEFAULT.progress_seconds,
) -> Step:
    """Return what is done about the figures of the source's virt-launcher; ``seconds`` is the time now of the clock of ``Course``."""
    course = _counted(course, known)
    old: Object = dict(migration.get("status") or {})
    status = {**old, "progress": figures(known, now)}
    condition = _condition(migration, known, course)
    if condition is not None:
        status = objects.with_status_condition(status, condition, now=times.to_rfc3339(now))
    if condition is None and _without_time(status["progress"]) == _without_time(old.get("progress") or {}):
        return Step(course)
    if course.tried is not None and (left := course.tried + write_seconds - seconds) > 0:
        return Step(course, again=left)
    warning = condition["message"] if condition is not None and condition["status"] == "False" else ""
    return Step(replace(course, tried=seconds), status, warning=warning)


def figures(known: messages.MigrationStatus, now: datetime) -> Object:
    """Return ``status.progress``: what is so now, or in the end was."""
    total, processed, remaining = amounts(known)
    found = {
        "totalBytes": total,
        "processedBytes": processed,
        "remainingBytes": remaining,
        "bytesPerSecond": _bounded(known.bytes_per_second),
        "dirtyBytesPerSecond": _bounded(known.dirty_bytes_per_second),
        "iteration": _bounded(known.iteration),
        "elapsedMilliseconds": _bounded(known.elapsed_milliseconds),
    }
    if known.state == "running" and (expected := _expected(found)) is not None:
        found["expectedRemainingSeconds"] = expected
    if known.direction == "incoming" and known.downtime_milliseconds > 0:  # the source only expects one
        found["downtimeMilliseconds"] = _bounded(known.downtime_milliseconds)
    return {**found, "lastUpdateTime": times.to_rfc3339(now)}


def at_end(known: messages.MigrationStatus | None, now: datetime, before: Mapping[str, Any] | None = None) -> dict[str, Object]:
    """Return the member ``progress`` of a status that says the end; nothing where no figures are known: then those before stay.

    Args:
        known: what virt-launcher says; of the target it knows of memory alone.
        now: the time.
        before: ``status.progress`` so far, which counts copied disks, too.
    """
    if known is None or amounts(known)[0] == 0:
        return {}
    found = figures(known, now)
    told = before or {}
    if known.direction == "incoming" and int(told.get("totalBytes") or 0) > found["totalBytes"]:
        found["totalBytes"] = told["totalBytes"]
        found["processedBytes"] = max(found["processedBytes"], int(told.get("processedBytes") or 0))
    return {"progress": found}


def _counted(course: Course, known: messages.MigrationStatus) -> Course:
    if known.elapsed_milliseconds == course.elapsed:
        return course
    newest = (_bounded(known.elapsed_milliseconds), amounts(known)[1])
    course = replace(course, elapsed=known.elapsed_milliseconds, recent=(*course.recent, newest)[-SAMPLES:])
    if known.iteration < 2:
        return replace(course, row=0)
    if 0 < known.dirty_bytes_per_second >= KEEPS_UP * _moved(course, known):
        return replace(course, row=max(course.row, 0) + 1)
    return replace(course, row=min(course.row, 0) - 1)


def _moved(course: Course, known: messages.MigrationStatus) -> int:
    """Return the bytes per second that the latest figures make; the launcher's word where they make none."""
    (begin, before), (end, after) = course.recent[0], course.recent[-1]
    return (after - before) * 1000 // (end - begin) if end > begin and after > before else _bounded(known.bytes_per_second)


def _condition(migration: Mapping[str, Any], known: messages.MigrationStatus, course: Course) -> Object | None:
    """Return the condition to set; None where it stays as it is. Its message is of that moment, or each write would change it."""
    before = objects.condition(objects.dig(migration, "status", "conditions"), progress.CONVERGING)
    is_behind = before is not None and before.get("status") == "False"
    total, processed, _ = amounts(known)
    # Of a guest with large copied disks, memory alone: these may be most of what there is, and are sent once.
    often = [(processed, total), (known.memory_processed_bytes, known.memory_total_bytes)]
    moved = _moved(course, known) if course.recent else known.bytes_per_second
    rates = f"the guest writes its memory at {_rate(known.dirty_bytes_per_second)}, and {_rate(moved)} are moved"
    if any(0 < whole <= sent // OFTEN for sent, whole in often):
        return (
            None
            if is_behind
            else _made(migration, "False", progress.SENT_REPEATEDLY, f"{OFTEN} times as much was sent as there is: {rates}")
        )
    if course.row >= SAMPLES:
        return None if is_behind else _made(migration, "False", progress.WRITES_FASTER, rates)
    if course.row <= -SAMPLES and is_behind:
        return _made(migration, "True", progress.CATCHES_UP, rates)
    return None


def _made(migration: Mapping[str, Any], status: str, reason: str, message: str) -> Object:
    return objects.new_condition(migration, progress.CONVERGING, status, reason, message)


def amounts(known: messages.MigrationStatus) -> tuple[int, int, int]:
    """Return the bytes in total, processed and remaining; those of memory alone from a virt-launcher that knows no others."""
    if known.data_total_bytes > 0:
        found = known.data_total_bytes, known.data_processed_bytes, known.data_remaining_bytes
    else:
        found = known.memory_total_bytes, known.memory_processed_bytes, known.memory_remaining_bytes
    total, processed, remaining = map(_bounded, found)
    return total, processed, remaining


def _expected(found: Mapping[str, int]) -> int | None:
    """Return the seconds that the rest takes, rounded up; None when it never ends, or nobody knows how fast it goes."""
    gained = found["bytesPerSecond"] - found["dirtyBytesPerSecond"]
    return -(-found["remainingBytes"] // gained) if gained > 0 else None


def _bounded(number: int) -> int:
    return min(max(number, 0), MAX_NUMBER)


def _rate(bytes_per_second: int) -> str:
    return f"{quantity.shown(_bounded(bytes_per_second))}/s"


def _without_time(found: Mapping[str, Any]) -> Object:
    return {field: value for field, value in found.items() if field != "lastUpdateTime"}
