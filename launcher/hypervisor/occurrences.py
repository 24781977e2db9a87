"""Occurrences in guests that are counted and told: reboots, and watchdogs that fired.

One reboot may be two resets, because SeaBIOS resets the machine again when it finds that it ran before. And a guest that resets its machine
in a loop would have its status written for each.
"""

from __future__ import annotations

from typing import Final

TOGETHER_SECONDS: Final = 3.0
"""Length of one occurrence: an event that comes sooner after its first one belongs to it."""


class Occurrences:
    """The number of occurrences of one kind in each domain."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[int, float]] = {}
        """By domain: how many, and when the last one began."""

    def take(self, domain: str, now: float) -> None:
        """Count one, unless it belongs to the last; ``now`` are seconds of a clock that only grows."""
        count, since = self._counted.get(domain, (0, float("-inf")))
        if now - since >= TOGETHER_SECONDS:
            self._counted[domain] = (count + 1, now)

    def of(self, domain: str) -> int:
        """Return how many there were in a domain."""
        return self._counted.get(domain, (0, 0.0))[0]
