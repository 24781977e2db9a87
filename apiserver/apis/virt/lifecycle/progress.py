"""The progress of a live migration, ``Migration.status.progress``: figures that virt-handler writes, and what is read from them. Pure.

virt-handler of the source writes it while the Migration is ``Running``, and that of the target with ``Succeeded``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta import objects
from apiserver.apis.virt.lifecycle import phases

NUMBERS: Final = (
    "totalBytes",
    "processedBytes",
    "remainingBytes",
    "bytesPerSecond",
    "dirtyBytesPerSecond",
    "iteration",
    "expectedRemainingSeconds",
    "elapsedMilliseconds",
    "downtimeMilliseconds",
)
"""Fields that are numbers, of at least 0."""
CONVERGING: Final = "Converging"
"""Type of a Migration's condition, by virt-handler of the source: False where the guest writes its memory as fast as it is moved. Absent
of one of which that was never so."""
WRITES_FASTER: Final = "GuestWritesFaster"
"""Reason of Converging=False: for some seconds the guest has written nearly as much as was moved, or more."""
SENT_REPEATEDLY: Final = "SentRepeatedly"
"""Reason of Converging=False: several times as much was sent as there is."""
CATCHES_UP: Final = "MovesFaster"
"""Reason of Converging=True, after it was False."""


def of(migration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the progress of a Migration; empty before its memory moves."""
    found: Mapping[str, Any] = objects.dig(migration, "status", "progress") or {}
    return found


def percent(migration: Mapping[str, Any]) -> int | None:
    """Return how much of it is on the target, from 0 to 100; None before there are figures. 100 is said of one that succeeded alone."""
    if phases.phase_of(migration) == phases.SUCCEEDED:
        return 100
    found = of(migration)
    total, remaining = found.get("totalBytes") or 0, found.get("remainingBytes") or 0
    if total <= 0:
        return None
    return max(0, min(99, 100 * (total - remaining) // total))
