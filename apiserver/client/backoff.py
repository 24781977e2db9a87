"""Pauses that grow while something keeps failing."""

from __future__ import annotations

import random


class Backoff:
    """Doubling pauses from ``initial_seconds`` up to ``maximum_seconds``, each shortened by up to half so that clients spread out."""

    def __init__(self, initial_seconds: float, maximum_seconds: float) -> None:
        self._initial = initial_seconds
        self._maximum = maximum_seconds
        self._next = initial_seconds

    def next(self) -> float:
        """Return the seconds to wait now."""
        pause, self._next = self._next, min(self._next * 2, self._maximum)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret

    def reset(self) -> None:
        """It worked: begin with the shortest pause next time."""
        self._next = self._initial
