"""One connection: parse requests, run the handler in sequence, write its answers.

The server checks :attr:`Connection.deadline` about once a second. Buffers are bounded: reading waits for the handler,
and writers for the client. A disconnect cancels the handler.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from math import inf
from time import time
from typing import Final, cast

from apiserver.client import buffers
from apiserver.endpoints.http.allowances import Allowance
from apiserver.endpoints.http.caps import origin
from apiserver.endpoints.http.heads import Head, ProtocolError
from apiserver.endpoints.http.messages import BodyError, Request, Response, Stream, date_at
from apiserver.endpoints.http.owner import Owner
from apiserver.endpoints.http.reading import Reader

logger = logging.getLogger(__name__)

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_STATUS: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
_REASONS: Final = {400: "BadRequest"}
SLICE: Final = 128 << 10
"""Approximate size of a long body's slices."""


_BODILESS: Final = frozenset({204, 304})


class Gone(ConnectionError):
    """The client is gone, or was cut off as too slow."""


class Connection(asyncio.Protocol):
    """The asyncio protocol of one HTTP connection."""

    __slots__ = (
        "_allowance",
        "_answering",
        "_began",
        "_continue",
        "_ending",
        "_is_long",
        "_more",
        "_paused_reading",
        "_reader",
        "_request",
        "_room",
        "_server",
        "_sink",
        "_stalled",
        "_transport",
        "_wake",
        "certificate",
        "deadline",
        "peer",
        "remote",
        "task",
        "tls",
    )  # fmt: skip

    def __init__(self, server: Owner) -> None:
        self._server = server
        self._allowance: Allowance = server.settings.unverified
        self._reader = Reader(server.unverified_heads, self._allowance.head_bytes)
        self._transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None
        self._request: Request | None = None
        self._answering = False
        self._began = False
        self._continue = False  # the client awaits 100
        self._ending = False
        self._is_long = False
        self._paused_reading = False
        self._wake: asyncio.Future[None] | None = None  # done with a request
        self._more: asyncio.Future[None] | None = None  # done with more of the body
        self._room: asyncio.Future[None] | None = None  # done with room to write
        self._stalled = inf  # since when there has been no room
        self._sink: Callable[[bytes], None] | None = None
        self.deadline = inf
        self.peer = self.remote = ""
        self.certificate: bytes | None = None
        self.tls: ssl.SSLObject | None = None

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection; its certificate decides its limits."""
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        if address:
            self.peer, self.remote = f"{address[0]}:{address[1]}", str(address[0])
        self.tls = transport.get_extra_info("ssl_object")
        self.certificate = self.tls.getpeercert(binary_form=True) if self.tls is not None else None
        if self.certificate is not None:
            self._allowance = self._server.settings.verified
            self._reader = Reader(self._server.heads, self._allowance.head_bytes)
        self._allowance.bound(transport)
        self.deadline = self._server.now() + self._allowance.head_seconds
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the answering task: its client is gone."""
        del exc
        self._transport = None
        self._server.closed(self)
        for future in (self._more, self._room):
            if future is not None and not future.done():
                future.set_result(None)
        if self._sink is not None:
            self._sink(b"")
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the sink or the reader; start the next request."""
        if self._sink is not None:
            self._sink(data)
            return
        if self._ending:
            return
        self._reader.receive(data)
        if self._answering:
            if self._more is not None and not self._more.done():
                self._more.set_result(None)
            self._pause_reading_if_enough()
        else:
            self._next()

    def eof_received(self) -> bool:
        """Return False, to close: such a client also reads no more."""
        return False

    def pause_writing(self) -> None:
        """Block writers: the client does not read."""
        if self._room is None:
            self._room = self._server.loop.create_future()
            self._stalled = self._server.now()

    def resume_writing(self) -> None:
        """Unblock writers."""
        room, self._room, self._stalled = self._room, None, inf
        if room is not None and not room.done():
            room.set_result(None)

    def _next(self) -> None:
        server = self._server
        try:
            head = self._reader.head()
        except ProtocolError as error:
            self.refuse(error)
            return
        if head is None:
            self._wait_for_head()
            return
        if self._is_long:
            self._is_long = False
            server.shortens(self)
        self._answering = True
        self._began = False
        self._continue = head.fields.expects_continue and not self._reader.complete
        self.deadline = inf
        if self.certificate is not None:
            self._ask(head)
        else:
            server.turns.wants(origin(self.remote), partial(self._ask_in_turn, head))

    def _ask(self, head: Head) -> None:
        self._request = Request(head, self)
        if self._wake is not None:
            self._wake.set_result(None)
            self._wake = None
        elif self.task is None:
            self.task = self._server.loop.create_task(self._serve())

    def _ask_in_turn(self, head: Head) -> bool:
        if self._transport is None or self._ending:
            return False
        self._ask(head)
        return True

    def _wait_for_head(self) -> None:
        length, server = len(self._reader), self._server
        if length and self.deadline > (latest := server.now() + self._allowance.head_seconds):
            self.deadline = latest
        if length > server.settings.unverified.head_bytes and not self._is_long:
            self._is_long = True
            server.lengthens(self)

    async def _serve(self) -> None:
        """Answer requests in one task: a task per request could cost more than the answer."""
        while not self._ending:
            request = self._request
            if request is None:
                self._wake = wake = self._server.loop.create_future()
                await wake
                continue
            await self._answer(request)
            if self._request is not None:
                await asyncio.sleep(0)  # sent ahead: let others run first

    async def _answer(self, request: Request) -> None:
        try:
            response = await self._server.handler(request)
            rest = self._respond(request, response)
            if rest is not None or self._room is not None:
                await self._send_all(rest or ())
            self._end_if(close=response.close)
        except asyncio.CancelledError:
            if self._sink is None:
                self.abort()
            raise
        except ConnectionError:
            self.abort()  # incomplete: the client must notice
        except Exception:
            logger.exception("sending a response failed", extra={"method": request.method, "path": request.path})
            self.abort()
        finally:
            self._request = None
            self._answered()

    def _answered(self) -> None:
        self._answering = False
        if self._transport is None or self._ending:
            return
        if self._sink is not None:
            self._ending = True
            self.deadline = self._server.now() + self._server.settings.linger_seconds
            self._transport.close()
            return
        self.deadline = self._server.now() + self._server.settings.idle_seconds
        if len(self._reader):
            self._next()
        elif self._server.draining:
            self.deadline = self._server.now() + self._server.settings.late_seconds
        if not self._answering or len(self._reader) <= self._allowance.waiting_bytes:
            self._resume_reading()

    def _respond(self, request: Request, response: Response) -> Iterable[bytes] | None:
        """Write the answer, or return a long one's slices to write; set ``response.close``. Raises Gone."""
        if self._sink is not None:
            return None  # another protocol
        if not response.close:
            response.close = (
                request.old or request.fields.close or self._server.draining or not (self._reader.complete or self._body_is_over())
            )
        if isinstance(response, Stream):
            if not response.ended:
                raise Gone("a stream handler returned before the end")
            return None
        if self._began:
            raise Gone("a stream failed after its head was sent")
        if self._transport is None:
            raise Gone("the client disconnected")
        begin, body = response.head(date_at(int(time())), close=response.close), response.body
        if request.method == "HEAD" or response.status in _BODILESS:
            self._transport.write(begin)
        elif not isinstance(body, bytes):
            return body.slices(SLICE, begin)
        elif len(body) <= SLICE:
            self._transport.write(begin + body)
        else:
            return chain((begin + body[:SLICE],), (body[start : start + SLICE] for start in range(SLICE, len(body), SLICE)))
        return None

    async def _send_all(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            await self.send(piece)
        await self.room()

    def _body_is_over(self) -> bool:
        """Drop the buffered body; return whether it was complete: the next request follows."""
        try:
            while not self._reader.complete and self._reader.body():
                pass
        except ProtocolError:
            return False
        return self._reader.complete and not self._reader.broken

    def refuse(self, error: ProtocolError) -> None:
        """Answer an unparsable request, and close."""
        body = json.dumps({**_STATUS, "message": str(error), "reason": _REASONS.get(error.code, ""), "code": error.code}).encode()
        response = Response(status=error.code, body=body, content_type="application/json")
        if self._transport is not None:
            self._transport.write(response.head(date_at(int(time())), close=True) + body)
        self._reader.drop()
        self._end_if(close=True)

    def _end_if(self, *, close: bool) -> None:
        """If ``close``, close when the client does, or at a new deadline: closing with unread input would discard the answer."""
        if close and self._transport is not None:
            settings = self._server.settings
            self._ending = True
            self.deadline = self._server.now() + (
                self._allowance.stall_seconds if self._transport.get_write_buffer_size() else settings.linger_seconds
            )
            self._resume_reading()
            if self._reader.complete or self._reader.broken:
                self._transport.close()

    @property
    def is_busy(self) -> bool:
        """True if a request is being answered."""
        return self._answering

    # Interface to requests, streams and the server (messages.Carrier, owner.Owned).

    async def piece(self) -> bytes:
        """Return the next piece of the body, empty at its end."""
        while True:
            try:
                piece = self._reader.body()
            except ProtocolError as error:
                raise BodyError(str(error)) from None
            if piece or self._reader.complete:
                return piece
            if self._transport is None:
                raise Gone("the client disconnected before it sent the whole body")
            if self._continue:
                self._continue = False
                self._transport.write(_CONTINUE)
            self._resume_reading()
            self._more = self._server.loop.create_future()
            try:
                await self._more
            finally:
                self._more = None

    async def start(self, stream: Stream) -> None:
        """Send a stream's head."""
        request = self._request
        if request is None or self._began:
            raise RuntimeError("a request can have only one response")
        self._began = True
        close = stream.close or not stream.chunked or request.fields.close or self._server.draining
        stream.close = close
        framing = b"Transfer-Encoding: chunked\r\n" if stream.chunked else b""
        await self.send(stream.head(date_at(int(time())), close=close, framing=framing))

    async def send(self, data: bytes) -> None:
        """Send bytes unchanged; return when there is room for more."""
        if self._transport is None:
            raise Gone("the client disconnected")
        self._transport.write(data)
        if self._room is not None:
            await self.room()

    async def room(self) -> None:
        """Wait until there is room for more."""
        while self._room is not None:
            await asyncio.shield(self._room)
            if self._transport is None:
                raise Gone("the client disconnected")

    async def finish(self, stream: Stream) -> None:
        """Send a stream's end, and before it the head unless that was sent."""
        await stream.prepare()
        if stream.chunked:
            await self.send(_LAST_CHUNK)

    @property
    def has_room(self) -> bool:
        """True if the client keeps up."""
        return self._room is None

    def send_now(self, data: bytes) -> bool:
        """Send bytes unchanged; return whether there is room for more."""
        if self._transport is None:
            raise Gone("the client disconnected")
        self._transport.write(data)
        return self._room is None

    def take_over(self, sink: Callable[[bytes], None], response: Response) -> None:
        """Send the head of a response (101), then pass input to ``sink``, empty at its end. Raises Gone."""
        if self._transport is None:
            raise Gone("the client disconnected")
        self._began = True
        self._sink = sink
        self._transport.write(response.head(date_at(int(time())), close=False, framing=b""))
        self._resume_reading()
        if rest := self._reader.rest():
            sink(rest)

    def narrow(self, size: int) -> None:
        """Limit the kernel's buffers to ``size`` bytes each way, for ``sink``'s protocol."""
        buffers.narrow(self._transport, size)

    def pause(self, *, reading: bool) -> None:
        """Resume reading from the client if ``reading``, else pause it, for ``sink``'s protocol."""
        if reading:
            self._resume_reading()
        else:
            self._pause_reading()

    def abort(self) -> None:
        """Close at once."""
        self._ending = True
        if self._transport is not None:
            self._transport.abort()

    def check(self, now: float) -> None:
        """Close after the deadline; abort if the client has not read for ``stall_seconds``."""
        if now - self._stalled > self._allowance.stall_seconds:
            self.abort()
        elif now > self.deadline:
            if self._ending or len(self._reader) or self._transport is None:
                self.abort()
            else:
                self._ending = True
                self.deadline = now + self._server.settings.linger_seconds
                self._transport.close()

    def drain(self) -> None:
        """Close soon if idle, but answer a request in transit."""
        if not self._answering and not self._ending:
            self.deadline = min(self.deadline, self._server.now() + self._server.settings.late_seconds)

    def _pause_reading_if_enough(self) -> None:
        if len(self._reader) > self._allowance.waiting_bytes:
            self._pause_reading()

    def _pause_reading(self) -> None:
        if not self._paused_reading and self._transport is not None and not self._transport.is_closing():
            self._paused_reading = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._paused_reading and self._transport is not None and not self._transport.is_closing():
            self._paused_reading = False
            self._transport.resume_reading()
