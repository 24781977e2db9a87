"""Counts of reboots and watchdog timeouts in guests.

SeaBIOS may reset a machine twice for one reboot, and a guest that resets in a loop must not cause a status write each time.
"""

from __future__ import annotations

from typing import Final

TOGETHER_SECONDS: Final = 3.0
"""Events within this time of an occurrence's first event count as one."""


class Occurrences:
    """Counts occurrences of one kind per domain."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[int, float]] = {}
        """Count and start of the last occurrence, by domain."""

    def take(self, domain: str, now: float) -> None:
        """Count an event at monotonic second ``now``, unless :meth:`expect` or a counted event was within ``TOGETHER_SECONDS`` before."""
        count, since = self._counted.get(domain, (0, float("-inf")))
        if now - since >= TOGETHER_SECONDS:
            self._counted[domain] = (count + 1, now)

    def expect(self, domain: str, now: float) -> None:
        """Do not count this domain's events in the ``TOGETHER_SECONDS`` after ``now``: we caused them."""
        count, _ = self._counted.get(domain, (0, 0.0))
        self._counted[domain] = (count, now)

    def of(self, domain: str) -> int:
        """Return the number of a domain's occurrences."""
        return self._counted.get(domain, (0, 0.0))[0]
