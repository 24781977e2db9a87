"""Pauses that grow with repeated failures."""

from __future__ import annotations

import random

from apiserver.apis.meta.backoff import pause_seconds


class Backoff:
    """Pauses that double from ``initial_seconds`` to ``maximum_seconds``, randomly shortened by up to half."""

    def __init__(self, initial_seconds: float, maximum_seconds: float) -> None:
        self._initial = initial_seconds
        self._maximum = maximum_seconds
        self._failures = 0

    def next(self) -> float:
        """Count a failure; return the seconds to pause, random and growing."""
        self._failures += 1
        return pause_seconds(self._failures, self._initial, self._maximum) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret

    def reset(self) -> None:
        """Restart with the shortest pause."""
        self._failures = 0
