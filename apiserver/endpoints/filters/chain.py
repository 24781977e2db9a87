"""The chain that every request passes, and the boundary that turns each failure into a Status.

::

    request ─▶ audit id, attributes ─▶ ready? ─▶ authentication ─▶ origin ─▶ impersonation ─▶ limits
    ─▶ authorization ─▶ deadline ─▶ application

Authorization precedes routing, so users without rights cannot learn which resources exist.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Final, Protocol

from apiserver.apis.meta.errors import BadRequest, Details, InternalError, ServiceUnavailable, StatusError, Timeout, TooManyRequests
from apiserver.apis.meta.users import User
from apiserver.endpoints import queries, requestinfo, responses
from apiserver.endpoints.auditids import audit_id
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.filters import impersonation
from apiserver.endpoints.filters.accounting import CLIENT_CLOSED, Accounting
from apiserver.endpoints.filters.authentication import Authenticator, NoCredential
from apiserver.endpoints.filters.authorization import ALWAYS_ALLOWED, CachingAuthorizer, forbidden
from apiserver.endpoints.filters.deadlines import Deadlines
from apiserver.endpoints.filters.impersonation import Impersonation
from apiserver.endpoints.filters.limits import InFlight
from apiserver.endpoints.filters.metering import Deciding, Requests
from apiserver.endpoints.filters.origins import Origins
from apiserver.endpoints.filters.withdrawing import Withdrawing
from apiserver.endpoints.http.messages import Request, Response
from apiserver.endpoints.requestinfo import RequestInfo

logger = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 5
_GATEWAY_TIMEOUT: Final = 504
IMPERSONATOR: Final = "authentication.k8s.io/impersonator"


class Phase(Enum):
    """Phase of the server's life."""

    STARTING = "starting"
    """Caches are not synced: 503 except for health. The namespace controller would take a 404 as "nothing there"."""
    SERVING = "serving"
    """Also when no longer ready."""
    DRAINING = "draining"
    """Running requests finish; new ones are refused."""


class Application(Protocol):
    """Answers the requests that pass the chain."""

    def is_long_running(self, info: RequestInfo) -> bool:
        """Return whether the client ends the request: a watch or a stream."""
        ...

    def answer(self, context: RequestContext) -> Awaitable[Response]:
        """Return the coroutine that answers; it, or this call, raises StatusErrors."""
        ...


@dataclass(slots=True)
class Chain:
    """Checks and answers every request of :mod:`apiserver.endpoints.http`. Deadlines apply while ``deadlines.run`` runs."""

    application: Application
    authenticator: Authenticator
    authorizer: CachingAuthorizer
    in_flight: InFlight
    requests: Requests
    deciding: Deciding
    impersonation: Impersonation | None = None
    origins: Origins = field(default_factory=Origins)
    withdrawing: Withdrawing | None = None
    """None: streams outlive rights."""
    deadlines: Deadlines = field(default_factory=lambda: Deadlines(REQUEST_SECONDS))
    phase: Phase = Phase.STARTING
    accounting: Accounting = field(init=False)

    def __post_init__(self) -> None:
        self.accounting = Accounting(self.requests)

    async def __call__(self, request: Request) -> Response:
        """Answer one request, count and log it. Exceptions become answers, except ConnectionError and cancellation."""
        started = time.perf_counter()  # uvloop's clock stands still within an iteration
        info = requestinfo.of(request)
        context = RequestContext(request, info, audit_id(request.given_audit_id))
        long_running = self.application.is_long_running(info)
        code, size = CLIENT_CLOSED, 0
        try:
            response = await self._bounded(context, long_running=long_running)
            code, size = response.status, response.length
        finally:
            self.accounting.ended(context, code, time.perf_counter() - started, size, long_running=long_running)
        if not response.prepared:
            responses.add_headers(context, response)
            if self.phase is Phase.DRAINING:
                response.force_close()
        return response

    async def _bounded(self, context: RequestContext, *, long_running: bool) -> Response:
        try:
            if self.phase is not Phase.SERVING and context.info.path not in ALWAYS_ALLOWED:
                self._refuse(context)
            context.user = await self._authenticate(context)
            return await self._go_on(context, long_running=long_running)
        except StatusError as error:
            return responses.status_of(context, error)
        except RecursionError:
            return responses.status_of(context, BadRequest("the body of the request is nested too deeply"))
        except ConnectionError:
            raise
        except Exception:
            logger.exception(
                "a request failed", extra={"audit_id": context.audit_id, "method": context.info.method, "path": context.info.path}
            )
            return self._failed(context)

    def _failed(self, context: RequestContext) -> Response:
        message = f"an internal error prevented the request from succeeding; see audit id {context.audit_id} in the server's log"
        return responses.status_of(context, InternalError(message))

    async def _go_on(self, context: RequestContext, *, long_running: bool) -> Response:
        if context.request.fields.upgrade and long_running and context.info.verb != "watch":
            self.origins.check(context.request)
        if self.impersonation is not None and impersonation.wants(context.request):
            await self._impersonate(self.impersonation, context)
        if long_running:
            return await self._answer(context, long_running=True)
        writes = context.info.mutating
        try:
            self.in_flight.enter(context.user, writes=writes)
        except TooManyRequests as error:
            self._terminated(context, error.code)
            raise
        try:
            return await self._answer(context, long_running=False)
        finally:
            self.in_flight.leave(writes=writes)

    async def _authenticate(self, context: RequestContext) -> User:
        began = time.perf_counter()
        try:
            user = await self.authenticator(context.request)
        except StatusError as error:
            self.deciding.unauthenticated("failure" if isinstance(error, NoCredential) else "error", time.perf_counter() - began)
            raise
        self.deciding.authenticated(user.name, time.perf_counter() - began)
        return user

    async def _impersonate(self, impersonate: Impersonation, context: RequestContext) -> None:
        found = await impersonate(context.request, context.user, context.info)
        if found is not None:
            context.annotate(IMPERSONATOR, context.user.name)
            context.user = found

    async def _authorize(self, context: RequestContext) -> None:
        began = time.perf_counter()
        try:
            decision = await self.authorizer.decide(context.user, context.info)
        except StatusError:
            self.deciding.refused("error", time.perf_counter() - began)
            raise
        if not decision.allowed:
            self.deciding.refused("no-opinion", time.perf_counter() - began)
            raise forbidden(context.user, context.info, decision.reason)
        self.deciding.allowed(time.perf_counter() - began)

    async def _authorize_also(self, context: RequestContext, verb: str) -> None:
        info = replace(context.info, verb=verb)
        decision = await self.authorizer.decide(context.user, info)
        if not decision.allowed:
            raise forbidden(context.user, info, decision.reason)

    async def _answer(self, context: RequestContext, *, long_running: bool) -> Response:
        await self._authorize(context)
        return await (self._answer_long(context) if long_running else self._answer_in_time(context))

    async def _answer_long(self, context: RequestContext) -> Response:
        gauge = self.requests.long_running.cell(*self._labels(context))
        gauge.value += 1
        if context.info.verb != "watch":
            context.authorize = partial(self._authorize_also, context)
            context.withdrawn = partial(self.withdrawing.withdrawn, context) if self.withdrawing is not None else None
        try:
            return await self.application.answer(context)
        finally:
            gauge.value -= 1

    def _refuse(self, context: RequestContext) -> None:
        match self.phase:
            case Phase.STARTING if not context.info.path.startswith(("/livez/", "/readyz/", "/healthz/", "/metrics")):
                raise ServiceUnavailable(
                    "the server is starting: its caches are not filled yet", Details(retry_after_seconds=_RETRY_SECONDS)
                )
            case Phase.DRAINING:
                raise TooManyRequests(
                    "The apiserver is shutting down, please try again later.", Details(retry_after_seconds=_RETRY_SECONDS)
                )
            case _:
                return

    async def _answer_in_time(self, context: RequestContext) -> Response:
        """Answer within the deadline; its cancellation, and no other, becomes a Timeout."""
        if context.info.verb == "patch":  # only the store finds out that an apply creates
            context.authorize = partial(self._authorize_also, context)
        if "timeout=" in context.request.target:
            return await self._in_its_time(context, queries.timeout(context.request.query, self.deadlines.seconds))
        deadline = self.deadlines.begin(context.request.task)
        try:
            response = await self.application.answer(context)
        except asyncio.CancelledError:
            if not deadline.expired or deadline.task.uncancel():
                raise
            raise self._too_late(context, self.deadlines.seconds) from None
        finally:
            self.deadlines.end(deadline)
        if deadline.expired:
            await deadline.absorb()
        return response

    async def _in_its_time(self, context: RequestContext, seconds: float) -> Response:
        limit: asyncio.Timeout | None = None
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self.application.answer(context)
        except TimeoutError:
            if limit is None or not limit.expired():
                raise
            raise self._too_late(context, seconds) from None

    def _too_late(self, context: RequestContext, seconds: float) -> Timeout:
        self._terminated(context, _GATEWAY_TIMEOUT)
        return Timeout(f"request did not complete within the requested timeout of {seconds:g} seconds")

    def _labels(self, context: RequestContext) -> tuple[str, ...]:
        return self.requests.labels(context.info, connect=context.info.verb == "get" and self.application.is_long_running(context.info))

    def _terminated(self, context: RequestContext, code: int) -> None:
        self.requests.terminations.increment(*self._labels(context), str(code))
