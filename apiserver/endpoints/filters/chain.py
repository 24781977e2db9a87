"""The chain that every request goes through, and the boundary that turns whatever goes wrong into one Status.

::

    request ─▶ audit id, attributes ─▶ ready? ─▶ authentication ─▶ audit ─▶ origin ─▶ impersonation ─▶ flow control
    ─▶ authorization ─▶ deadline ─▶ application

Authorization stands before routing: who may not, does not learn what there is.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Final, Protocol

import orjson

from apiserver.apis.meta.errors import BadRequest, Details, InternalError, ServiceUnavailable, StatusError, Timeout, TooManyRequests
from apiserver.apis.meta.users import User
from apiserver.endpoints import queries, requestinfo, responses
from apiserver.endpoints.audit.events import Record
from apiserver.endpoints.audit.ids import audit_id
from apiserver.endpoints.audit.policy import Level
from apiserver.endpoints.call import Call
from apiserver.endpoints.filters import impersonation
from apiserver.endpoints.filters.accounting import CLIENT_CLOSED, Accounting
from apiserver.endpoints.filters.auditing import Auditor
from apiserver.endpoints.filters.authentication import Authenticator, NoCredential
from apiserver.endpoints.filters.authorization import ALWAYS_ALLOWED, Authorizer, forbidden
from apiserver.endpoints.filters.deadlines import Deadlines
from apiserver.endpoints.filters.impersonation import Impersonation
from apiserver.endpoints.filters.limits import Limiter, Refused, Seat
from apiserver.endpoints.filters.metering import Deciding, Requests
from apiserver.endpoints.filters.origins import Origins
from apiserver.endpoints.filters.withdrawing import Withdrawing
from apiserver.endpoints.http.messages import Request, Response, Stream, encoded
from apiserver.endpoints.negotiation import JSON
from apiserver.endpoints.requestinfo import RequestInfo

logger = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 5
_GATEWAY_TIMEOUT: Final = 504
_SLICE: Final = 1 << 20
_DISCOVERY: Final = "/apis"


class Phase(Enum):
    """Phase of the server's life."""

    STARTING = "starting"
    """Caches are not synced: everything but health is 503, never 404, which the namespace controller would take as "nothing there"."""
    SERVING = "serving"
    """Ready, or no longer ready but still serving whoever comes."""
    DRAINING = "draining"
    """Requests under way end; later ones are sent elsewhere."""


class Application(Protocol):
    """Application that answers the requests that get through."""

    def is_long_running(self, info: RequestInfo) -> bool:
        """Return whether the request lasts as long as its client likes: a watch or a stream."""
        ...

    def answer(self, call: Call) -> Awaitable[Response]:
        """Return what answers the request.

        Raises:
            StatusError: everything that is not a success; when it is awaited, too.
        """
        ...


class Tracing(Protocol):
    """Records what becomes of requests."""

    def __call__(self, call: Call, answer: Awaitable[Response]) -> Awaitable[Response]:
        """Await the answer to an authenticated request, and return it or raise what it raises."""


@dataclass(slots=True)
class Chain:
    """A handler of :mod:`apiserver.endpoints.http`. The bound of time holds while ``deadlines.run`` runs."""

    application: Application
    authenticator: Authenticator
    authorizer: Authorizer
    limiter: Limiter
    requests: Requests
    deciding: Deciding
    impersonation: Impersonation | None = None
    auditor: Auditor | None = None
    tracing: Tracing | None = None
    origins: Origins = field(default_factory=Origins)
    withdrawing: Withdrawing | None = None
    """None: whoever has opened a stream keeps it."""
    deadlines: Deadlines = field(default_factory=lambda: Deadlines(REQUEST_SECONDS))
    phase: Phase = Phase.STARTING
    accounting: Accounting = field(init=False)

    def __post_init__(self) -> None:
        self.accounting = Accounting(self.requests, self.auditor)

    async def __call__(self, request: Request) -> Response:
        """Answer one request, whatever happens."""
        started = time.perf_counter()  # uvloop's clock stands still within a turn
        info = requestinfo.of(request)
        call = Call(request, info, audit_id(request.given_audit_id))
        long_running = self.application.is_long_running(info)
        code, size = CLIENT_CLOSED, 0
        try:
            response = await self._bounded(call, long_running=long_running)
            code, size = response.status, response.length
            if call.record is not None:
                _keep(call.record, call, response)
        finally:
            self.accounting.ended(call, code, time.perf_counter() - started, size, long_running=long_running)
        if not response.prepared:
            responses.add_headers(call, response)
            if self.phase is Phase.DRAINING:
                response.force_close()
        return response

    async def _bounded(self, call: Call, *, long_running: bool) -> Response:
        """The request boundary: the one place where everything unexpected is caught."""
        try:
            if self.phase is not Phase.SERVING and call.info.path not in ALWAYS_ALLOWED:
                self._refuse(call)
            call.user = await self._authenticate(call)
            going_on = self._go_on(call, long_running=long_running)
            return await (going_on if self.tracing is None else self.tracing(call, going_on))
        except StatusError as error:
            return _refused(call, error)
        except RecursionError:
            return _refused(call, BadRequest("the body of the request is nested too deeply"))
        except ConnectionError:
            raise  # the client is gone: nobody to tell
        except Exception as error:
            logger.exception("a request failed", extra={"audit_id": call.audit_id, "method": call.info.method, "path": call.info.path})
            return self._failed(call, error)

    def _failed(self, call: Call, error: Exception) -> Response:
        """Return the answer to a request that met a mistake of ours: whoever asked learns where to look, and no more."""
        message = f"an error on the server prevented the request from succeeding; its log names audit id {call.audit_id}"
        if self.auditor is not None and call.record is not None:
            self.auditor.panicked(call.record, error, call.annotations)
            call.record = None
        return responses.status_of(call, InternalError(message))

    async def _go_on(self, call: Call, *, long_running: bool) -> Response:
        if self.auditor is not None:
            call.record = self.auditor.received(call)
            if call.record is not None and self.auditor.full:
                await self.auditor.room()
            if long_running and call.record is not None:
                call.on_start = partial(self.auditor.started, call.record)
        if call.request.fields.upgrade:
            self.origins.check(call.request)
        if self.impersonation is not None and impersonation.wants(call.request):
            await self._impersonate(self.impersonation, call)
        seat = self._enter(call, long_running=long_running)
        if seat is None:
            return await self._answer(call, long_running=long_running)
        call.on_initialized = seat.initialized
        call.flow = encoded(seat.headers)
        try:
            if seat.waits:
                call.wait("apf-queue-wait", await seat.taken())
            return await self._answer(call, long_running=long_running)
        finally:
            seat.leave()

    async def _authenticate(self, call: Call) -> User:
        began = time.perf_counter()
        try:
            user = await self.authenticator(call.request)
        except StatusError as error:
            self.deciding.unauthenticated("failure" if isinstance(error, NoCredential) else "error", time.perf_counter() - began)
            if self.auditor is not None:
                self.auditor.unauthenticated(call, error.code)
            raise
        self.deciding.authenticated(user.name, time.perf_counter() - began)
        return user

    async def _impersonate(self, impersonate: Impersonation, call: Call) -> None:
        found = await impersonate(call.request, call.user, call.info)
        if found is not None:
            call.user = found.user
            if call.record is not None:
                call.record.act_as(found.user, found.constraint)

    def _enter(self, call: Call, *, long_running: bool) -> Seat | None:
        try:
            return self.limiter.enter(call.user, call.info, long_running=long_running)
        except TooManyRequests as error:
            self._terminated(call, error.code)
            raise

    async def _authorize(self, call: Call) -> None:
        began = time.perf_counter()
        try:
            decision = await self.authorizer.decide(call.user, call.info)
        except StatusError as error:
            self.deciding.refused("error", time.perf_counter() - began)
            if call.record is not None:
                call.record.decided(allowed=False, reason=error.message)
            raise
        if call.record is not None:
            call.record.decided(allowed=decision.allowed, reason=decision.reason)
        if not decision.allowed:
            self.deciding.refused("no-opinion", time.perf_counter() - began)
            raise forbidden(call.user, call.info, decision.reason)
        self.deciding.allowed(time.perf_counter() - began)

    async def _authorize_also(self, call: Call, verb: str) -> None:
        info = replace(call.info, verb=verb)
        decision = await self.authorizer.decide(call.user, info)
        if not decision.allowed:
            raise forbidden(call.user, info, decision.reason)

    async def _answer(self, call: Call, *, long_running: bool) -> Response:
        await self._authorize(call)
        return await (self._answer_long(call) if long_running else self._answer_in_time(call))

    async def _answer_long(self, call: Call) -> Response:
        gauge = self.requests.long_running.cell(*self._labels(call))
        gauge.value += 1
        if call.info.verb == "watch":
            self.requests.watches.opened(call.info, 1)
        else:
            call.authorize = partial(self._authorize_also, call)
            call.withdrawn = partial(self.withdrawing.withdrawn, call) if self.withdrawing is not None else None
        try:
            return await self.application.answer(call)
        finally:
            gauge.value -= 1
            if call.info.verb == "watch":
                self.requests.watches.opened(call.info, -1)

    def _refuse(self, call: Call) -> None:
        match self.phase:
            case Phase.STARTING if not call.info.path.startswith(("/livez/", "/readyz/", "/healthz/", "/metrics")):
                raise ServiceUnavailable(
                    "the server is starting: its caches are not complete yet", Details(retry_after_seconds=_RETRY_SECONDS)
                )
            case Phase.DRAINING:
                raise TooManyRequests(
                    "The apiserver is shutting down, please try again later.", Details(retry_after_seconds=_RETRY_SECONDS)
                )
            case _:
                return

    async def _answer_in_time(self, call: Call) -> Response:
        """Answer within the time that the client gives, or ours. Only what cancelled the answer is a Timeout, not any TimeoutError."""
        if call.info.verb == "patch":  # applying may create, and only the store finds out
            call.authorize = partial(self._authorize_also, call)
        if "timeout=" in call.request.target:
            return await self._in_its_time(call, queries.timeout(call.request.query, self.deadlines.seconds))
        deadline = self.deadlines.begin(call.request.task)
        try:
            response = await self.application.answer(call)
        except asyncio.CancelledError:
            if not deadline.expired or deadline.task.uncancel():
                raise
            raise self._too_late(call, self.deadlines.seconds) from None
        finally:
            self.deadlines.end(deadline)
        if deadline.expired:
            await deadline.absorb()
        return response

    async def _in_its_time(self, call: Call, seconds: float) -> Response:
        limit: asyncio.Timeout | None = None
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self.application.answer(call)
        except TimeoutError:
            if limit is None or not limit.expired():
                raise
            raise self._too_late(call, seconds) from None

    def _too_late(self, call: Call, seconds: float) -> Timeout:
        self._terminated(call, _GATEWAY_TIMEOUT)
        return Timeout(f"request did not complete within the requested timeout of {seconds:g} seconds")

    def _labels(self, call: Call) -> tuple[str, ...]:
        return self.requests.labels(call.info, connect=call.info.verb == "get" and self.application.is_long_running(call.info))

    def _terminated(self, call: Call, code: int) -> None:
        self.requests.terminations.increment(*self._labels(call), str(code))


def _refused(call: Call, error: StatusError) -> Response:
    if call.record is not None:
        call.record.status = error.to_json()
        call.record.response(call.record.status)
    if isinstance(error, Refused):
        call.flow = encoded(error.headers)
    return responses.status_of(call, error)


def _keep(record: Record, call: Call, response: Response) -> None:
    """Give the audit log the answer's object, if it is to have it and there is one."""
    shown = call.info.is_resource or call.info.path.startswith(_DISCOVERY)
    if record.verdict.level is not Level.REQUEST_RESPONSE or not shown or isinstance(response, Stream) or record.status:
        return
    body = response.body if isinstance(response.body, bytes) else b"".join(response.body.slices(_SLICE))
    if response.headers.get("Content-Encoding") == "gzip":
        body = gzip.decompress(body)
    if response.content_type == JSON and body:
        record.response(orjson.loads(body) if responses.is_pretty(call) else body)
