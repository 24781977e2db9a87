"""Cached decisions for repeated GETs: what was answered before is answered again without a task.

Clients ask for the same objects again and again. The first time, the chain of filters decides, and what it found is kept with the
request's head; from then on nothing is decided anew as long as all that it was decided by holds, and a request costs what reading the
object, counting and recording cost. Each of these is asked anew every time: whether the certificate's judgement holds, the authorizer's
remembered answer (some seconds long), the flow and its seat, the audit log's room, and of course the object.

Whatever is not as it was goes the long way (:class:`~apiserver.endpoints.filters.chain.Chain`), which finds the same answer: an object that
is absent, a decision that is too old, a seat that is not free, a cache that is behind, a client that wants the object of now while storage
does not answer. Metrics, events of the audit log and the answer are those of the long way.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

from apiserver.endpoints.audit.events import Repeated
from apiserver.endpoints.audit.ids import audit_id
from apiserver.endpoints.audit.policy import Level
from apiserver.endpoints.call import Again, Call
from apiserver.endpoints.filters import impersonation
from apiserver.endpoints.filters.accounting import CLIENT_CLOSED, SLOW_SECONDS, Accounting
from apiserver.endpoints.filters.authentication import Authenticator, Known
from apiserver.endpoints.filters.authorization import Authorizer
from apiserver.endpoints.filters.limits import Limiter, Passage
from apiserver.endpoints.filters.metering import Deciding, Series
from apiserver.endpoints.http.heads import Head
from apiserver.endpoints.http.messages import LATER, Later, Request, Response, Waiting, begin, date_at
from apiserver.endpoints.negotiation import JSON
from apiserver.endpoints.requestinfo import RequestInfo
from apiserver.endpoints.responses import NOT_CACHED

_OK: Final = 200
_MOST: Final = 64
"""Certificates with which one head is remembered."""
_SECOND: Final = 1_000_000_000
_BEGIN: Final = begin(_OK, JSON) + b"Audit-Id: "
_CLOSE: Final = b"Connection: close\r\n"


@dataclass(frozen=True, slots=True)
class Familiar:
    """Cached decisions of one client's GETs of one object."""

    remote: str
    """The client's address: it stands in the audit log."""
    known: Known
    info: RequestInfo
    again: Again
    series: Series
    recorded: Repeated | None


class _Visit:
    """One GET that is answered by cached decisions."""

    __slots__ = ("began", "connection", "familiar", "given_id", "head", "passage", "received")

    def __init__(self, familiar: Familiar, head: Head, given_id: str, connection: Waiting, passage: Passage) -> None:
        self.familiar = familiar
        self.head = head
        self.given_id = given_id
        self.connection = connection
        self.passage = passage
        self.began = time.perf_counter()
        self.received = time.time_ns()


class Familiars:
    """Answers GETs whose decisions are cached."""

    def __init__(
        self, authenticator: Authenticator, authorizer: Authorizer, limiter: Limiter, deciding: Deciding, accounting: Accounting
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._limiter = limiter
        self._deciding = deciding
        self._accounting = accounting
        self._auditor = accounting.auditor

    def remember(self, call: Call, response: Response) -> None:
        """Keep what was found of a request that was answered, if another one like it can be answered without the chain."""
        request, fields, record, again = call.request, call.request.fields, call.record, call.again
        known = self._authenticator.known(request)
        if again is None or known is None or known.user is not call.user or response.status != _OK or call.warnings or call.annotations:
            return
        if fields.close or request.old or fields.upgrade or fields.expects_continue or "timeout=" in request.target:
            return
        if impersonation.wants(request):
            return  # whether one may is asked anew each time, even of who acts as himself
        if record is not None and record.verdict.level is not Level.METADATA:
            return
        remembered = request.remembered
        if len(remembered) >= _MOST:
            remembered.clear()
        recorded = None if record is None else Repeated(record)
        series = self._accounting.requests.series(call.info)
        remembered[request.certificate] = Familiar(request.remote, known, call.info, again, series, recorded)

    def answer(self, head: Head, given_id: str, connection: Waiting) -> bytes | Later | None:
        """Answer if the request's decisions are cached (:data:`~apiserver.endpoints.http.messages.Prompt`)."""
        familiar = head.remembered.get(connection.certificate)
        if not isinstance(familiar, Familiar) or familiar.remote != connection.remote or not self._may(familiar):
            return None
        if self._auditor is not None and self._auditor.full:
            return None
        again = familiar.again
        body = None if again.fresh else again.body()
        if body is None and not again.fresh:
            return None
        passage = self._limiter.passage(familiar.known.user, familiar.info)
        if not passage.begin():
            return None
        visit = _Visit(familiar, head, given_id, connection, passage)
        if body is not None:
            return self._answered(visit, body)
        again.now().add_done_callback(partial(self._arrived, visit))
        return LATER

    def _may(self, familiar: Familiar) -> bool:
        """Return whether all still holds that was decided of who asks."""
        if not self._authenticator.holds(familiar.known):
            return False
        decision = self._authorizer.known(familiar.known.user, familiar.info)
        return decision is not None and decision.allowed

    def _arrived(self, visit: _Visit, reached: asyncio.Future[int]) -> None:
        """Go on: the cache has what there was when the client asked, or will not have it."""
        connection = visit.connection
        failed = reached.cancelled() or reached.exception() is not None
        if not connection.is_open:
            self._told(visit, CLIENT_CLOSED, 0)
            return
        body = None if failed else visit.familiar.again.body()
        if body is None:
            visit.passage.end(time.perf_counter() - visit.began)
            connection.ask(visit.head.of_id(visit.given_id) if visit.given_id else visit.head)
        else:
            connection.reply(self._answered(visit, body, _CLOSE if connection.ends else b""))

    def _answered(self, visit: _Visit, body: bytes, close: bytes = b"") -> bytes:
        """Return the whole answer, and take note of it."""
        size = len(body) + 1
        name = self._told(visit, _OK, size)
        date = date_at(visit.received // _SECOND)
        fields = (_BEGIN, name.encode(), NOT_CACHED, visit.passage.fields, close, size, date, body)
        return b"%b%b\r\n%b%b%bContent-Length: %d\r\nDate: %b\r\n\r\n%b\n" % fields

    def _told(self, visit: _Visit, code: int, size: int) -> str:
        """Count and record a request that is over; return its id."""
        familiar = visit.familiar
        seconds = time.perf_counter() - visit.began
        visit.passage.end(seconds)
        self._deciding.authenticated(familiar.known.user.name, 0.0)
        self._deciding.allowed(0.0)
        name = audit_id(visit.given_id)
        if code != _OK or seconds > SLOW_SECONDS:
            self._accounting.ended(self._call(visit, name), code, seconds, size, long_running=False)
            return name
        familiar.series.ended(code, seconds, 0.0, size)
        if self._auditor is not None and familiar.recorded is not None:
            self._auditor.again(familiar.recorded, name, visit.received)
        return name

    def _call(self, visit: _Visit, name: str) -> Call:
        """Return the request as the chain would have it, for what is told of the unusual."""
        familiar = visit.familiar
        call = Call(Request(visit.head, visit.connection), familiar.info, name)
        call.user = familiar.known.user
        if self._auditor is not None and familiar.recorded is not None:
            call.record = self._auditor.received(call, visit.received)
            decision = self._authorizer.known(call.user, call.info)
            if call.record is not None and decision is not None:
                call.record.decided(allowed=decision.allowed, reason=decision.reason)
        return call
