"""Validate bearer tokens by kube-apiserver's TokenReview."""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import Final

from apiserver.apis.core.resources import TOKEN_REVIEWS
from apiserver.apis.meta.errors import InternalError, StatusError
from apiserver.apis.meta.objects import dig
from apiserver.apis.meta.users import User
from apiserver.client.rest import Client, TransportError
from apiserver.endpoints.filters.expiring import Expiring
from apiserver.endpoints.filters.reviewing import Answered, ask, uncounted
from apiserver.metrics.instruments import Counter, Histogram

SECONDS: Final = 10.0
_SIZE: Final = 4096
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_MAX_TOKEN: Final = 64 << 10
_AT_ONCE: Final = 32
"""Any client can send tokens, and kube-apiserver attributes all reviews to us."""


class TokenCounts:
    """Metrics of token lookups, cached (``hit``) or reviewed (``miss``), and of TokenReviews by outcome."""

    def __init__(self) -> None:
        name = "authentication_token_cache_"
        self.requests = Counter(f"{name}request_total", "Token lookups by cache hit or miss.", ("status",))
        self.seconds = Histogram(f"{name}request_duration_seconds", "Duration of token lookups in seconds.", _BUCKETS, ("status",))
        self.fetches = Counter(f"{name}fetch_total", "TokenReviews by result: ok, or error for unusable answers.", ("status",))

    def looked_up(self, status: str, seconds: float) -> None:
        """Record one token lookup, a ``hit`` or a ``miss``."""
        self.requests.increment(status)
        self.seconds.observe(seconds, status)


class TokenReview:
    """Validates tokens by TokenReview, cached by hash, so no token stays in memory."""

    def __init__(
        self, client: Client, answered: Answered = uncounted, counts: TokenCounts | None = None, *, seconds: float = SECONDS
    ) -> None:
        self._client = client
        self._answered = answered
        self._counts = counts or TokenCounts()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._seconds = seconds
        self._answers: Expiring[bytes, tuple[User | None]] = Expiring(_SIZE)

    async def __call__(self, token: str) -> User | None:
        """Return the token's user; None if invalid. Raises InternalError if kube-apiserver does not answer."""
        if len(token) > _MAX_TOKEN:
            return None
        key = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        began = time.perf_counter()
        known = self._answers.get(key)
        if known is not None:
            self._counts.looked_up("hit", time.perf_counter() - began)
            return known[0]
        user = None
        try:
            async with self._turns:
                user = await self._ask(token)
        finally:
            self._counts.looked_up("miss", time.perf_counter() - began)
            self._counts.fetches.increment("error" if user is None else "ok")
        self._answers.put(key, (user,), self._seconds)
        return user

    async def _ask(self, token: str) -> User | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        try:
            answer = await ask(self._client, TOKEN_REVIEWS, review, self._answered)
        except (StatusError, TransportError) as error:
            raise InternalError(f"cannot review a token at kube-apiserver: {error}") from error
        if not dig(answer, "status", "authenticated"):
            return None
        found = dig(answer, "status", "user") or {}
        extra = {key: tuple(values) for key, values in (found.get("extra") or {}).items()}
        return User(found.get("username", ""), tuple(found.get("groups") or ()), found.get("uid", ""), extra)
