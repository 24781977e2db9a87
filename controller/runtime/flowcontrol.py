"""Token buckets: limits of rates and bursts (client-go's ``flowcontrol.RateLimiter``). Pure."""

from __future__ import annotations

import math


class TokenBucket:
    """A bucket with initially ``burst`` tokens, which gains ``per_second`` up to ``burst``.

    Costs are either checked before (:meth:`delay`, then :meth:`spend`), or charged afterwards, with a debt of at most ``debt`` tokens.
    ``now`` is in seconds of any clock; a clock that goes backwards adds nothing.
    """

    __slots__ = ("_at", "_burst", "_debt", "_per_second", "_tokens")

    def __init__(self, burst: float, per_second: float, now: float, *, debt: float = math.inf) -> None:
        self._burst = burst
        self._per_second = per_second
        self._debt = debt
        self._tokens = burst
        self._at = now

    def delay(self, now: float, tokens: float = 1.0) -> float:
        """Return the seconds until this many tokens are available."""
        return max(0.0, (tokens - self._filled(now)) / self._per_second)

    def spend(self, now: float, tokens: float = 1.0) -> None:
        """Take tokens, even if they are not available; the debt is limited."""
        self._tokens = max(self._filled(now) - tokens, -self._debt)

    def try_accept(self, now: float, tokens: float = 1.0) -> bool:
        """Take tokens if available, and return whether they were."""
        if self._filled(now) < tokens:
            return False
        self.spend(now, tokens)
        return True

    def _filled(self, now: float) -> float:
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._per_second)
        self._at = now
        return self._tokens
