"""A live migration as one line: a bar on terminals, words elsewhere. Pure."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta import objects, quantity, times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import migration_attempts, phases, progress

BAR: Final = 24
"""Columns."""
MAX_MESSAGE: Final = 300
"""Of a running migration."""
MAX_OUTCOME: Final = 32 << 10
"""Of a finished one; no status has more."""


def line(migration: Object) -> str:
    """Return a migration's progress in words: ``Running: 52% of 256Mi, 45Mi/s, iteration 2, about 3 s left``.

    Later attempts: ``Running (attempt 2 of 3): …``; between two attempts, with the failure.
    """
    phase, details = _phase(migration), _details(migration)
    return f"{phase}: {', '.join(details)}" if details else phase


def bar(migration: Object, width: int) -> str:
    """Return the progress in at most ``width`` columns, with a bar if the percentage is known."""
    done, details = progress.percent(migration), _details(migration)
    failed = migration_attempts.failure_of(migration) is not None
    if phases.phase_of(migration) not in (phases.RUNNING, phases.SUCCEEDED) or done is None or failed:
        return _cut(line(migration), width)
    return _cut(f"{_phase(migration)} {drawn(done)} {', '.join(details)}", width)


def drawn(percent: int) -> str:
    """Return the bar for a percentage."""
    full = BAR * percent // 100
    return f"[{'#' * full}{'-' * (BAR - full)}]"


def outcome(migration: Object) -> str:
    """Return an ended migration's outcome as a sentence."""
    message = one_line(str(dig_migration(migration, "status", "message") or ""), MAX_OUTCOME)
    phase = phases.phase_of(migration)
    if phase != phases.SUCCEEDED:
        verb = "was cancelled" if phase == phases.CANCELLED else "failed"
        return f"migration {objects.name_of(migration)} {verb}{f': {message}' if message else ''}"
    found, parts = progress.of(migration), [message or "the guest moved"]
    if (took := _seconds(migration)) is not None:
        parts.append(f"it took {took:.0f} s")
    if (down := found.get("downtimeMilliseconds")) is not None:
        parts.append(f"with the guest paused for {down} ms")
    if sent := found.get("processedBytes"):
        parts.append(f"{quantity.shown(sent)} were sent")
    return ", ".join(parts)


def _phase(migration: Object) -> str:
    phase, number = phases.phase_of(migration) or phases.PENDING, migration_attempts.number_of(migration)
    text = f"{phase} (attempt {number} of {migration_attempts.MAX_ATTEMPTS})" if number > 1 else phase
    return f"{text}, being cancelled" if objects.is_deleting(migration) and phase not in phases.MIGRATION_FINAL else text


def _details(migration: Object) -> list[str]:
    found, done = progress.of(migration), progress.percent(migration)
    failed = migration_attempts.failure_of(migration) is not None
    if phases.phase_of(migration) != phases.RUNNING or done is None or failed:
        message = one_line(str(dig_migration(migration, "status", "message") or ""), MAX_MESSAGE)
        return [message] if message else []
    parts = [f"{done}% of {quantity.shown(found.get('totalBytes') or 0)}", f"{quantity.shown(found.get('bytesPerSecond') or 0)}/s"]
    if (iteration := found.get("iteration") or 0) > 1:
        parts.append(f"iteration {iteration}")
    if (left := found.get("expectedRemainingSeconds")) is not None:
        parts.append(f"about {left} s left")
    condition = objects.condition(dig_migration(migration, "status", "conditions"), progress.CONVERGING)
    if condition is not None and condition.get("status") == "False":
        parts.append("does not converge")
    return parts


def _seconds(migration: Object) -> float | None:
    began, ended = (times.parsed(dig_migration(migration, "status", each)) for each in ("startTime", "endTime"))
    return None if began is None or ended is None else max(0.0, (ended - began).total_seconds())


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"
