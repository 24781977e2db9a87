"""Bearer tokens, judged by kube-apiserver's TokenReview."""

from __future__ import annotations

import hashlib
from typing import Final

from apiserver.apis.core.resources import TOKEN_REVIEWS
from apiserver.apis.meta.errors import InternalError, StatusError
from apiserver.apis.meta.objects import dig
from apiserver.client.rest import Client, TransportError
from apiserver.endpoints.filters.expiring import Expiring
from apiserver.endpoints.filters.reviewing import Answered, ask, uncounted
from apiserver.endpoints.users import User

SECONDS: Final = 10.0
_SIZE: Final = 4096
_MAX_TOKEN: Final = 64 << 10


class TokenReview:
    """Asks kube-apiserver; remembers its answers for some seconds, by the token's hash, so that no token stays in memory."""

    def __init__(self, client: Client, answered: Answered = uncounted, *, seconds: float = SECONDS) -> None:
        self._client = client
        self._answered = answered
        self._answers: Expiring[bytes, tuple[User | None]] = Expiring(seconds, _SIZE)

    async def __call__(self, token: str) -> User | None:
        """Return whose token it is; None if it is worth nothing.

        Raises:
            InternalError: kube-apiserver cannot be asked.
        """
        if len(token) > _MAX_TOKEN:
            return None
        key = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        known = self._answers.get(key)
        if known is not None:
            return known[0]
        user = await self._ask(token)
        self._answers.put(key, (user,))
        return user

    async def _ask(self, token: str) -> User | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        try:
            answer = await ask(self._client, TOKEN_REVIEWS, review, self._answered)
        except (StatusError, TransportError) as error:
            raise InternalError(f"review a token at kube-apiserver: {error}") from error
        if not dig(answer, "status", "authenticated"):
            return None
        found = dig(answer, "status", "user") or {}
        extra = {key: tuple(values) for key, values in (found.get("extra") or {}).items()}
        return User(found.get("username", ""), tuple(found.get("groups") or ()), found.get("uid", ""), extra)
