"""Pauses that grow while something keeps failing."""

from __future__ import annotations

import random

from apiserver.apis.meta.backoff import pause_seconds


class Backoff:
    """Doubling pauses from ``initial_seconds`` up to ``maximum_seconds``, each shortened by up to half so that clients spread out."""

    def __init__(self, initial_seconds: float, maximum_seconds: float) -> None:
        self._initial = initial_seconds
        self._maximum = maximum_seconds
        self._failures = 0

    def next(self) -> float:
        """Return the seconds to wait now."""
        self._failures += 1
        return pause_seconds(self._failures, self._initial, self._maximum) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret

    def reset(self) -> None:
        """It worked: begin with the shortest pause next time."""
        self._failures = 0
