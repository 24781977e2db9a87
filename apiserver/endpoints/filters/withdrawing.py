"""Rights of whoever holds a stream open, judged again while it lasts.

A request is judged once; a stream goes on for days. So every half minute it is judged again as at its opening: the credential (a
certificate by its date and by whom we trust now, a token by a TokenReview), the right to act as somebody else, and the rights to the
subresource. Rights are asked for anew, whatever was remembered of them. What a front proxy says of its user was said once and stays:
kube-apiserver does not tell us of credentials that expire.

Timing, from the loss of a right to the end of its stream, while kube-apiserver answers: an answer may be shared for
:data:`SHARED_SECONDS`, the next question comes after at most ``CHECK_SECONDS[1]``, and is answered within :data:`ANSWER_SECONDS`: less
than a minute. A stream about which nobody could answer for :data:`UNANSWERED_SECONDS` is ended, too.
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
"""A stream is judged again after a random time in between: those that were opened together do not ask together."""
SHARED_SECONDS: Final = 5.0
"""Age up to which an answer is taken that another stream of the same user asked for."""
ANSWER_SECONDS: Final = 20.0
"""After so long a judgement counts as one that nobody could give."""
UNANSWERED_SECONDS: Final = 300.0
"""Time for which a stream goes on without any answer."""
AT_ONCE: Final = 16
"""Questions that are asked at the same time."""
_SIZE: Final = 8192

_Key = tuple[User, RequestInfo]


class Anew:
    """An authorizer that asks anew; streams of the same user that ask the same at the same time share the answer."""

    def __init__(self, authorizer: CachingAuthorizer) -> None:
        self._authorizer = authorizer
        self._answers: Expiring[_Key, Decision] = Expiring(SHARED_SECONDS, _SIZE)
        self._asking: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        """Return the decision of now, or of some seconds ago.

        Raises:
            InternalError: nobody can say.
        """
        key = (user, info)
        lock = self._asking.setdefault(key, asyncio.Lock())
        async with lock:
            found = self._answers.get(key)
            if found is not None:
                return found
            async with self._turns:
                decision = await self._authorizer.decide_anew(user, info)
            self._answers.put(key, decision)
            return decision


class Withdrawing:
    """Judges the holders of streams again."""

    def __init__(
        self, authenticator: Authenticator, authorizer: CachingAuthorizer, check_seconds: tuple[float, float] = CHECK_SECONDS
    ) -> None:
        self._check_seconds = check_seconds
        self._authenticator = authenticator
        self._authorizer = Anew(authorizer)
        self._impersonation = Impersonation(self._authorizer)

    async def withdrawn(self, context: RequestContext, verbs: Sequence[str]) -> End:
        """Wait until the caller may not do one of these verbs any more, or nobody could say for too long; return what to say."""
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
                logger.warning("whether a stream may go on cannot be asked", extra={"audit_id": context.audit_id, "error": str(error)})
                end = _unknown(unanswered) if unanswered >= UNANSWERED_SECONDS else None
            if end is not None:
                about = {"audit_id": context.audit_id, "path": context.info.path, "user": context.user.name, "reason": end.reason}
                logger.info("a stream is ended: its user may not any more", extra=about)
                return end

    async def authorize(self, context: RequestContext, verbs: Sequence[str]) -> End | None:
        """Authorize the request of a stream as if it came now; return why it is ended, None: it goes on.

        Raises:
            StatusError: nobody can say.
        """
        try:
            user = await self._authenticator(context.request)
        except Unauthorized:
            return End(UNAUTHORIZED, "your credential is not valid any more")
        if impersonation.wants(context.request):
            try:
                found = await self._impersonation(context.request, user, context.info)
            except Forbidden:
                return End(POLICY_VIOLATION, "your right to act as somebody else was withdrawn")
            user = found.user if found is not None else user
        for verb in verbs:
            info = context.info if verb == context.info.verb else replace(context.info, verb=verb)
            if not (await self._authorizer.decide(user, info)).allowed:
                return End(POLICY_VIOLATION, f"your right to {verb} {info.resource}/{info.subresource} was withdrawn")
        return None


def _unknown(seconds: float) -> End:
    return End(GOING_AWAY, f"for {seconds:.0f} s nobody could say whether you still may: dial again")
