"""Reboots of guests, told from the resets of their machines.

One reboot may be two resets, because SeaBIOS resets the machine again when it finds that it ran before. And a guest that resets its machine
in a loop would have its status written for each.
"""

from __future__ import annotations

from typing import Final

REBOOT_SECONDS: Final = 3.0
"""Resets that come sooner after the first of a reboot belong to it."""


class Reboots:
    """The number of reboots of each domain."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[int, float]] = {}
        """By domain: how many, and when the first reset of the last one was."""

    def take_reset(self, domain: str, now: float) -> None:
        """Count a reset; ``now`` are seconds of a clock that only grows."""
        count, since = self._counted.get(domain, (0, float("-inf")))
        if now - since >= REBOOT_SECONDS:
            self._counted[domain] = (count + 1, now)

    def of(self, domain: str) -> int:
        """Return how often the guest of a domain rebooted."""
        return self._counted.get(domain, (0, 0.0))[0]
