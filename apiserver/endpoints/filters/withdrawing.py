"""Recheck the user's rights during a stream (``docs/decisions/streams.md``).

Every half minute, repeat the opening's checks without cache: the credential (a certificate by dates and current trust, a token by
TokenReview), impersonation, and the rights to the subresource.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from apiserver.apis.meta.errors import Forbidden, StatusError, Unauthorized
from apiserver.apis.meta.users import User
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.filters import impersonation
from apiserver.endpoints.filters.authentication import Authenticator
from apiserver.endpoints.filters.authorization import CachingAuthorizer, Decision
from apiserver.endpoints.filters.expiring import Expiring
from apiserver.endpoints.filters.impersonation import Impersonation
from apiserver.endpoints.http.upgrade import GOING_AWAY, POLICY_VIOLATION, UNAUTHORIZED, End
from apiserver.endpoints.requestinfo import RequestInfo

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = (20.0, 30.0)
"""Random in between, to spread streams opened together."""
SHARED_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 20.0
UNANSWERED_SECONDS: Final = 300.0
"""Then a stream ends."""
AT_ONCE: Final = 16
_SIZE: Final = 8192

_Key = tuple[User, RequestInfo]


class Anew:
    """An authorizer without cache; equal concurrent questions share one answer."""

    def __init__(self, authorizer: CachingAuthorizer, shared_seconds: float = SHARED_SECONDS) -> None:
        self._authorizer = authorizer
        self._shared_seconds = shared_seconds
        self._answers: Expiring[_Key, Decision] = Expiring(_SIZE)
        self._asking: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        """Return a decision at most ``shared_seconds`` old, shared by equal questions; raises InternalError without one."""
        key = (user, info)
        lock = self._asking.setdefault(key, asyncio.Lock())
        async with lock:
            found = self._answers.get(key)
            if found is not None:
                return found
            async with self._turns:
                decision = await self._authorizer.decide_anew(user, info)
            self._answers.put(key, decision, self._shared_seconds)
            return decision


class Withdrawing:
    """Rechecks the rights of streams' users."""

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: CachingAuthorizer,
        *,
        check_seconds: tuple[float, float] = CHECK_SECONDS,
        shared_seconds: float = SHARED_SECONDS,
    ) -> None:
        self._authenticator = authenticator
        self._check_seconds = check_seconds
        self._authorizer = Anew(authorizer, shared_seconds)
        self._impersonation = Impersonation(self._authorizer)

    async def withdrawn(self, context: RequestContext, verbs: Sequence[str]) -> End:
        """Wait until the caller loses one of ``verbs``, or checks fail for too long; return the stream's End."""
        loop = asyncio.get_running_loop()
        answered = loop.time()
        while True:
            await asyncio.sleep(random.uniform(*self._check_seconds))  # noqa: S311 - no secret
            asked = loop.time()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    end = await self.authorize(context, verbs)
                answered = asked
            except (StatusError, TimeoutError) as error:
                unanswered = loop.time() - answered
                logger.warning("cannot check whether a stream is still allowed", extra={"audit_id": context.audit_id, "error": str(error)})
                end = _unknown(unanswered) if unanswered >= UNANSWERED_SECONDS else None
            if end is not None:
                about = {"audit_id": context.audit_id, "path": context.info.path, "user": context.user.name, "reason": end.reason}
                logger.info("closing a stream: its user is no longer allowed", extra=about)
                return end

    async def authorize(self, context: RequestContext, verbs: Sequence[str]) -> End | None:
        """Repeat the checks of the stream's opening; return the End if it must close, or None. Raises StatusError if undecided."""
        try:
            user = await self._authenticator(context.request)
        except Unauthorized:
            return End(UNAUTHORIZED, "your credential is no longer valid")
        if impersonation.wants(context.request):
            try:
                found = await self._impersonation(context.request, user, context.info)
            except Forbidden:
                return End(POLICY_VIOLATION, "your permission to impersonate was revoked")
            user = found or user
        for verb in verbs:
            info = context.info if verb == context.info.verb else replace(context.info, verb=verb)
            if not (await self._authorizer.decide(user, info)).allowed:
                return End(POLICY_VIOLATION, f"your permission to {verb} {info.resource}/{info.subresource} was revoked")
        return None


def _unknown(seconds: float) -> End:
    return End(GOING_AWAY, f"for {seconds:.0f} s your permission could not be checked: connect again")
