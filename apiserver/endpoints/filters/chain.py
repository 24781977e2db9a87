"""The chain that every request goes through, and the boundary that turns whatever goes wrong into one Status.

::

    request ─▶ audit id, attributes ─▶ ready? ─▶ authentication ─▶ authorization ─▶ in-flight limit ─▶ deadline ─▶ application

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
from typing import Final, Protocol

from aiohttp import web

from apiserver.apis.meta.errors import BadRequest, Details, InternalError, ServiceUnavailable, StatusError, Timeout, TooManyRequests
from apiserver.endpoints import queries, requestinfo, responses
from apiserver.endpoints.application import Application
from apiserver.endpoints.call import Call
from apiserver.endpoints.filters.authorization import ALWAYS_ALLOWED, Authorizer
from apiserver.endpoints.filters.limits import InFlight
from apiserver.endpoints.users import User

logger = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 5
_MAX_AUDIT_ID: Final = 64
_CLIENT_CLOSED: Final = 499


class Phase(Enum):
    """Where the server is in its life."""

    STARTING = "starting"
    """Caches are not synced: everything but health is 503, never 404, which the namespace controller would take as "nothing there"."""
    SERVING = "serving"
    """Ready, or no longer ready but still serving whoever comes."""
    DRAINING = "draining"
    """Requests under way end; later ones are sent elsewhere."""


class Observer(Protocol):
    """Counts what happens."""

    def began(self, call: Call, *, long_running: bool) -> None:
        """Take note of a request that is let in."""
        ...

    def ended(self, call: Call, code: int, seconds: float, *, long_running: bool) -> None:
        """Take note of an answer."""
        ...


@dataclass(slots=True)
class Chain:
    """A handler for ``aiohttp.web.Server``."""

    application: Application
    authenticate: Callable[[web.BaseRequest], Awaitable[User]]
    authorizer: Authorizer
    in_flight: InFlight
    observer: Observer
    phase: Phase = Phase.STARTING

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, whatever happens."""
        started = time.perf_counter()  # uvloop's clock stands still within a turn
        info = requestinfo.parse(request.method, request.rel_url.path, request.query)
        call = Call(request, info, _audit_id(request))
        long_running = self.application.is_long_running(info)
        code = _CLIENT_CLOSED
        self.observer.began(call, long_running=long_running)
        try:
            response = await self._bounded(call, long_running=long_running)
            code = response.status
        finally:
            seconds = time.perf_counter() - started
            self.observer.ended(call, code, seconds, long_running=long_running)
            _log(call, code, seconds)
        if not response.prepared:
            responses.add_headers(call, response)
            if self.phase is Phase.DRAINING:
                response.force_close()
        return response

    async def _bounded(self, call: Call, *, long_running: bool) -> web.StreamResponse:
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

    async def _let_in(self, call: Call, *, long_running: bool) -> web.StreamResponse:
        if call.info.path not in ALWAYS_ALLOWED:
            self._refuse_if_not_serving(call)
        call.user = await self.authenticate(call.request)
        await self.authorizer.check(call.user, call.info)
        with self.in_flight.admitted(call.user, call.info, long_running=long_running):
            if long_running:
                return await self.application.answer(call)
            return await self._in_time(call)

    def _refuse_if_not_serving(self, call: Call) -> None:
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

    async def _in_time(self, call: Call) -> web.StreamResponse:
        seconds = queries.timeout(call.request.query, REQUEST_SECONDS)
        limit: asyncio.Timeout | None = None
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self.application.answer(call)
        except TimeoutError:
            if limit is None or not limit.expired():
                raise
            raise Timeout(f"request did not complete within the requested timeout of {seconds:g} seconds") from None


def _audit_id(request: web.BaseRequest) -> str:
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
