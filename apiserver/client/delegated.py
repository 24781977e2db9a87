"""Delegated authentication and authorization: kube-apiserver decides who may read ``/metrics``.

As in kube-controller-manager: TokenReview, then SubjectAccessReview for the path (a non-resource URL).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from apiserver.apis.core.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.objects import Object, dig
from apiserver.client.rest import Client, TransportError

REMEMBERED_SECONDS: Final = 10.0
"""As for tokens in kube-apiserver's components."""
_REMEMBERED: Final = 64
_AT_ONCE: Final = 4
"""Concurrent reviews, to protect kube-apiserver."""
_SECONDS: Final = 10.0
_MAX_TOKEN: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Refusal:
    """HTTP status code and message for a refused request."""

    code: int
    message: str


class Access:
    """Asks kube-apiserver whether a token's user may read a path; caches answers by hash, so that no token stays in memory."""

    def __init__(self, client: Client, *, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._now = now
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._known: dict[tuple[bytes, str], tuple[float, Refusal | None]] = {}

    async def refusal(self, authorization: str, path: str) -> Refusal | None:
        """Return the Refusal if the bearer of an ``Authorization`` header may not ``get`` the path, or None.

        401 for an invalid token, 403 without the right, 503 without an answer.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            return Refusal(401, "Unauthorized: a bearer token is required")
        key = (hashlib.sha256(token.encode(errors="surrogateescape")).digest(), path)
        known = self._known.get(key)
        if known is not None and known[0] > self._now():
            return known[1]
        try:
            async with self._turn, asyncio.timeout(_SECONDS):
                refusal = await self._ask(token, path)
        except (StatusError, TransportError, TimeoutError) as error:
            return Refusal(503, f"cannot ask kube-apiserver who may read {path}: {str(error) or 'no answer in time'}")
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[key] = (self._now() + REMEMBERED_SECONDS, refusal)
        return refusal

    async def _ask(self, token: str, path: str) -> Refusal | None:
        review: Object = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": {"token": token}}
        status = (await self._client.create(TOKEN_REVIEWS, review)).get("status")
        if dig(status, "authenticated") is not True:
            return Refusal(401, "Unauthorized: the token is not valid")
        user: Object = dig(status, "user") or {}
        access: Object = {
            "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": SUBJECT_ACCESS_REVIEWS.kind,
            "spec": {
                "user": user.get("username", ""),
                "uid": user.get("uid", ""),
                "groups": user.get("groups") or [],
                "extra": user.get("extra") or {},
                "nonResourceAttributes": {"path": path, "verb": "get"},
            },
        }
        if dig(await self._client.create(SUBJECT_ACCESS_REVIEWS, access), "status", "allowed") is True:
            return None
        return Refusal(403, f'forbidden: User "{user.get("username", "")}" cannot get path "{path}"')
