"""Wall time as a port. Delays use the event loop's time, which tests replace."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        ...


class SystemClock:
    """The system's clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)
