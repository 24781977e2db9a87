"""The progress of a live migration, ``Migration.status.progress``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.virt.kinds import dig_migration
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
"""At least 0."""
CONVERGING: Final = "Converging"
"""False: the guest changes its memory as fast as it is sent. Absent if that never happened."""
WRITES_FASTER: Final = "GuestWritesFaster"
"""``Converging=False``: for some seconds the guest changed about as much memory as was sent."""
SENT_REPEATEDLY: Final = "SentRepeatedly"
"""``Converging=False``: several times the total was sent."""
CATCHES_UP: Final = "MovesFaster"
"""``Converging=True`` after it was False."""


def of(migration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``status.progress`` of a Migration; empty before memory is sent."""
    found: Mapping[str, Any] = dig_migration(migration, "status", "progress") or {}
    return found


def percent(migration: Mapping[str, Any]) -> int | None:
    """Return the percentage of data on the target; None without numbers. 100 only if the Migration succeeded."""
    if phases.phase_of(migration) == phases.SUCCEEDED:
        return 100
    found = of(migration)
    total, remaining = found.get("totalBytes") or 0, found.get("remainingBytes") or 0
    if total <= 0:
        return None
    return max(0, min(99, 100 * (total - remaining) // total))
