"""Wall time as a port. Waiting uses the event loop's time instead, which tests replace."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A clock."""

    def now(self) -> datetime:
        """Return the moment, in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the moment, in UTC."""
        return datetime.now(UTC)
