"""Token buckets: how often something may happen, in bursts and in the long run (client-go's ``flowcontrol.RateLimiter``). Pure."""

from __future__ import annotations

import math


class TokenBucket:
    """``burst`` tokens at first, ``per_second`` more from then on, never more than ``burst``.

    What costs tokens is either asked about before (:meth:`delay`, then :meth:`spend`) or charged afterwards, when its price is known: then
    the bucket is in debt, of at most ``debt`` tokens. ``now`` is in seconds of any clock; one that goes backwards fills nothing.
    """

    __slots__ = ("_at", "_burst", "_debt", "_per_second", "_tokens")

    def __init__(self, burst: float, per_second: float, now: float, *, debt: float = math.inf) -> None:
        self._burst = burst
        self._per_second = per_second
        self._debt = debt
        self._tokens = burst
        self._at = now

    def delay(self, now: float, tokens: float = 1.0) -> float:
        """Return the seconds until there are so many tokens; 0 when there are."""
        return max(0.0, (tokens - self._filled(now)) / self._per_second)

    def spend(self, now: float, tokens: float = 1.0) -> None:
        """Take tokens, whether they are there or not."""
        self._tokens = max(self._filled(now) - tokens, -self._debt)

    def try_accept(self, now: float, tokens: float = 1.0) -> bool:
        """Take tokens if they are there; return whether they were."""
        if self._filled(now) < tokens:
            return False
        self.spend(now, tokens)
        return True

    def _filled(self, now: float) -> float:
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._per_second)
        self._at = now
        return self._tokens
