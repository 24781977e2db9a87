"""The chain that every request goes through, and the boundary that turns whatever goes wrong into one Status.

::

    request ─▶ audit id, attributes ─▶ ready? ─▶ authentication ─▶ flow control ─▶ authorization ─▶ deadline ─▶ application

Authorization stands before routing: who may not, does not learn what there is.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from apiserver.apis.meta.errors import BadRequest, Details, InternalError, ServiceUnavailable, StatusError, Timeout, TooManyRequests
from apiserver.endpoints import queries, requestinfo, responses
from apiserver.endpoints.application import Application
from apiserver.endpoints.call import Call
from apiserver.endpoints.filters import metering
from apiserver.endpoints.filters.authorization import ALWAYS_ALLOWED, Authorizer
from apiserver.endpoints.filters.limits import Limiter, Seat
from apiserver.endpoints.filters.metering import Deciding, Requests
from apiserver.endpoints.http import Request, Response
from apiserver.endpoints.users import User

logger = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 5
_MAX_AUDIT_ID: Final = 64
_CLIENT_CLOSED: Final = 499
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_GATEWAY_TIMEOUT: Final = 504
_APPLY: Final = "application/apply-patch+"


class Phase(Enum):
    """Where the server is in its life."""

    STARTING = "starting"
    """Caches are not synced: everything but health is 503, never 404, which the namespace controller would take as "nothing there"."""
    SERVING = "serving"
    """Ready, or no longer ready but still serving whoever comes."""
    DRAINING = "draining"
    """Requests under way end; later ones are sent elsewhere."""


@dataclass(slots=True)
class Chain:
    """A handler of :mod:`apiserver.endpoints.http`."""

    application: Application
    authenticate: Callable[[Request], Awaitable[User]]
    authorizer: Authorizer
    limiter: Limiter
    requests: Requests
    deciding: Deciding
    phase: Phase = Phase.STARTING

    async def __call__(self, request: Request) -> Response:
        """Answer one request, whatever happens."""
        started = time.perf_counter()  # uvloop's clock stands still within a turn
        info = requestinfo.parse(request.method, request.path, request.query)
        call = Call(request, info, _audit_id(request))
        long_running = self.application.is_long_running(info)
        code, size = _CLIENT_CLOSED, 0
        try:
            response = await self._bounded(call, long_running=long_running)
            code, size = response.status, _size(response)
        finally:
            seconds = time.perf_counter() - started
            self._count(call, code, seconds, size, long_running=long_running)
            _log(call, code, seconds)
        if not response.prepared:
            responses.add_headers(call, response)
            if self.phase is Phase.DRAINING:
                response.force_close()
        return response

    async def _bounded(self, call: Call, *, long_running: bool) -> Response:
        """The request boundary: the one place where everything unexpected is caught."""
        try:
            return await self._let_in(call, long_running=long_running)
        except StatusError as error:
            return responses.status_of(error)
        except RecursionError:
            return responses.status_of(BadRequest("the body of the request is nested too deeply"))
        except ConnectionError:
            raise  # the client is gone: nobody to tell
        except Exception:
            logger.exception("a request failed", extra={"audit_id": call.audit_id, "method": call.info.method, "path": call.info.path})
            message = f"an error on the server prevented the request from succeeding; its log names audit id {call.audit_id}"
            return responses.status_of(InternalError(message))

    async def _let_in(self, call: Call, *, long_running: bool) -> Response:
        if self.phase is not Phase.SERVING and call.info.path not in ALWAYS_ALLOWED:
            self._refuse(call)
        await self._authenticate(call)
        seat = self._enter(call, long_running=long_running)
        if seat is None:
            await self._authorize(call)
            return await self._answer(call, long_running=long_running)
        try:
            if seat.waits:
                call.waited += await seat.taken()
            await self._authorize(call)
            return await self._answer(call, long_running=long_running)
        finally:
            seat.leave()

    async def _authenticate(self, call: Call) -> None:
        began = time.perf_counter()
        try:
            call.user = user = await self.authenticate(call.request)
        except StatusError as error:
            self.deciding.unauthenticated("failure" if error.code == _UNAUTHORIZED else "error", time.perf_counter() - began)
            raise
        self.deciding.authenticated(user.name, time.perf_counter() - began)

    def _enter(self, call: Call, *, long_running: bool) -> Seat | None:
        try:
            return self.limiter.enter(call.user, call.info, long_running=long_running)
        except TooManyRequests as error:
            self._terminated(call, error.code)
            raise

    async def _authorize(self, call: Call) -> None:
        began = time.perf_counter()
        try:
            await self.authorizer.check(call.user, call.info)
        except StatusError as error:
            self.deciding.refused("no-opinion" if error.code == _FORBIDDEN else "error", time.perf_counter() - began)
            raise
        self.deciding.allowed(time.perf_counter() - began)

    async def _answer(self, call: Call, *, long_running: bool) -> Response:
        if not long_running:
            return await self._in_time(call)
        gauge = self.requests.long_running.cell(*self._labels(call))
        gauge.value += 1
        try:
            return await self.application.answer(call)
        finally:
            gauge.value -= 1

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

    async def _in_time(self, call: Call) -> Response:
        seconds = queries.timeout(call.request.query, REQUEST_SECONDS)
        limit: asyncio.Timeout | None = None
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self.application.answer(call)
        except TimeoutError:
            if limit is None or not limit.expired():
                raise
            self._terminated(call, _GATEWAY_TIMEOUT)
            raise Timeout(f"request did not complete within the requested timeout of {seconds:g} seconds") from None

    def _count(self, call: Call, code: int, seconds: float, size: int, *, long_running: bool) -> None:
        info = call.info
        if info.mutating:
            dry_run = metering.dry_run(call.request.query)
            apply = info.verb == "patch" and call.request.headers.get("Content-Type", "").startswith(_APPLY)
            self.requests.series(info, dry_run=dry_run, apply=apply).ended(code, seconds, call.waited, size)
            if length := call.request.headers.get("Content-Length"):
                self.requests.body(info, length)
        else:
            connect = long_running and info.verb != "watch"
            self.requests.series(info, connect=connect).ended(code, seconds, call.waited, size)
        if code == _CLIENT_CLOSED:
            self.requests.aborts.increment(*self._labels(call)[:-1])

    def _labels(self, call: Call) -> tuple[str, ...]:
        return self.requests.labels(call.info, connect=call.info.verb == "get" and self.application.is_long_running(call.info))

    def _terminated(self, call: Call, code: int) -> None:
        self.requests.terminations.increment(*self._labels(call), str(code))


def _size(response: Response) -> int:
    """Return the size of an answer that is whole in memory."""
    return response.length


def _audit_id(request: Request) -> str:
    """Return the id that the aggregator gave the request, so that both logs join, or a new one."""
    given = request.headers.get("Audit-Id", "")
    return given if given and len(given) <= _MAX_AUDIT_ID and given.isprintable() else str(uuid.uuid4())


def _log(call: Call, code: int, seconds: float) -> None:
    level = logging.WARNING if code >= 500 else logging.INFO if call.info.mutating else logging.DEBUG
    if logger.isEnabledFor(level):
        about = {
            "audit_id": call.audit_id,
            "verb": call.info.verb,
            "path": call.info.path,
            "user": call.user.name,
            "code": code,
            "milliseconds": round(seconds * 1000, 1),
        }
        logger.log(level, "answered", extra=about)
