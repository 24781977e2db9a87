"""One connection to a server, and the exchange of HTTP/1.1 on it; what its bytes mean is the business of ``h11``.

An exchange belongs to one task, which asks (:meth:`Connection.ask`), reads the body (:meth:`Connection.piece`) and ends it, whether it has
read everything or not (:meth:`Connection.finish`). What may be relied on:

* nothing is read ahead without bound: a body that nobody reads stops the server, and a server that does not read stops us;
* an answer that comes while the request is still being sent ends the sending, and is the answer;
* what came before the connection broke is read before the error is raised;
* after an error, a cancellation or a body that was not read to its end the connection has no other exchange.

Nothing is decoded, followed or remembered: no compression is offered, redirects are answers, and cookies are header fields.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import h11

from apiserver.client.transport import Disconnected, ExchangeFailed, NotHTTP, keep_alive

MAX_HEAD_BYTES: Final = 128 << 10
BUFFER_BYTES: Final = 256 << 10
"""Bytes of a body that wait for its reader before the connection is not read from any more."""
PIECE_BYTES: Final = 64 << 10
"""Of a request's body are handed to the connection at once."""
MAX_CHUNKS: Final = 1000
"""Chunks of an answer that are read before others have a turn: a server may send them a byte each."""
_END: Final = h11.EndOfMessage()
_Event: TypeAlias = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of waits before a TimeoutError; None: for ever."""

    total_seconds: float | None = None
    """From the request to the end of the answer."""
    connect_seconds: float | None = None
    """For a connection, and for the turn to have one."""
    idle_seconds: float | None = None
    """For the answer and each further piece of it."""


class Connection(asyncio.Protocol):
    """A connection, and the exchange that is under way on it."""

    __slots__ = (
        "_deadline", "_ended", "_error", "_failure", "_has_more", "_heard_at", "_is_answered", "_is_over", "_loop", "_on_lost", "_parser",
        "_quiet", "_reads", "_received", "_size", "_transport", "_unsent", "_waiter", "_writes", "is_busy", "kept_at",
    )  # fmt: skip

    def __init__(self, on_lost: Callable[[Connection], object]) -> None:
        """Prepare it; ``on_lost`` is called once when it is gone, if it ever was there."""
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._parser = h11.Connection(h11.CLIENT, MAX_HEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._received: deque[bytes] = deque()
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._reads = self._writes = True
        self._unsent = memoryview(b"")
        self._is_over = False  # the server says no more
        self._error: Exception | None = None  # why it says no more
        self._failure: Exception | None = None  # why nobody may read on
        self._is_answered = False  # something of the answer came
        self._ended = False  # the answer has been read
        self._has_more = False  # something of it is here and was not read
        self._deadline: asyncio.TimerHandle | None = None
        self._quiet: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self.is_busy = False
        self.kept_at = 0.0
        """Time at which it became idle."""

    @property
    def is_usable(self) -> bool:
        """True if an exchange may begin on it, as far as anybody knows here."""
        return not (self.is_busy or self._is_over or self._transport is None or self._transport.is_closing())

    @property
    def certificate(self) -> Mapping[str, object]:
        """The server's verified certificate, as of ``ssl.SSLSocket.getpeercert``; empty without TLS."""
        tls = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        return tls.getpeercert() or {} if tls is not None else {}

    async def secure(self, tls: ssl.SSLContext, server_name: str) -> None:
        """Speak TLS from here on.

        Raises:
            OSError: the server does not, or does not prove that it has the name.
        """
        plain = self._transport
        if plain is None:
            raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
        try:
            self._transport = await self._loop.start_tls(plain, self, tls, server_hostname=server_name)
        except BaseException:
            plain.abort()  # whoever is cancelled before the handshake began leaves it open otherwise
            raise

    async def ask(self, request: h11.Request, body: bytes, deadline: float | None, idle_seconds: float | None) -> h11.Response:
        """Send a request and return the head of its answer; answers in between (1xx) are passed over.

        Raises:
            ExchangeFailed: there is no answer.
            TimeoutError: neither until the deadline, of the loop's time, nor within ``idle_seconds``.
        """
        self.is_busy = True
        self._is_answered = self._ended = self._has_more = False
        if self._transport is None or self._is_over:
            raise Disconnected(self._error)
        try:
            head = self._parser.send(request) or b""
            if body:
                self._parser.send_with_data_passthrough(h11.Data(data=body))
            self._parser.send(_END)
        except h11.LocalProtocolError as error:
            raise NotHTTP(f"the request cannot be sent: {error}") from error
        self._watch_time(deadline, idle_seconds)
        self._transport.write(head + body[:PIECE_BYTES])
        self._unsent = memoryview(body)[PIECE_BYTES:]
        return await self._head(self._transport)

    async def piece(self) -> bytes:
        """Return what came of the body since the last time, and wait for some if there is none; empty: that was all.

        Raises:
            ExchangeFailed, TimeoutError: there is more, but it did not come.
        """
        if self._has_more:
            await asyncio.sleep(0)
        while not self._ended:
            if part := self._part():
                return part
            if not self._ended:
                await self._wait()
        return b""

    def finish(self) -> bool:
        """End the exchange. Return whether there can be another one; if not, the connection is closed."""
        self._forget_time()
        with contextlib.suppress(ExchangeFailed, TimeoutError):
            while not self._ended and self._part():
                pass  # it may all be here
        self.is_busy = False
        if not self._ended or self._unsent or not self._writes:
            self.abort()
            return False
        if not self._can_go_on():
            self.close()
            return False
        self._parser.start_next_cycle()
        self._read_on()
        return True

    def fail(self, error: Exception) -> None:
        """Close it at once, whatever is under way: its task gets the error."""
        self._failure = self._failure or error
        self.abort()
        self._wake()

    def abort(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Say goodbye and close it."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio says."""
        self._transport = cast("asyncio.Transport", transport)
        keep_alive(transport)

    def data_received(self, data: bytes) -> None:
        """As asyncio says. A server that speaks unasked is not asked again."""
        if not self.is_busy:
            self._is_over = True
            self.abort()
            return
        self._is_answered = True
        self._heard_at = self._loop.time()
        self._received.append(data)
        self._size += len(data)
        if self._size > BUFFER_BYTES and self._reads and self._transport is not None:
            self._reads = False
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """As asyncio says; the transport closes itself then."""
        self._is_over = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """As asyncio says."""
        self._is_over, self._error, self._transport = True, error, None
        self._wake()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """As asyncio says."""
        self._writes = False

    def resume_writing(self) -> None:
        """As asyncio says."""
        self._writes = True
        self._wake()

    async def _head(self, transport: asyncio.Transport) -> h11.Response:
        """Send what is left of the request until the head of the answer is there."""
        while True:
            event = self._next()
            if type(event) is h11.Response:
                return event
            if event is not h11.NEED_DATA:
                continue
            if self._unsent and self._writes:
                transport.write(self._unsent[:PIECE_BYTES])
                self._unsent = self._unsent[PIECE_BYTES:]
            else:
                await self._wait()

    def _part(self) -> bytes:
        """Return what is here of the body. Small chunks that came together are one piece."""
        parts: list[bytes] = []
        self._has_more = False
        while len(parts) < MAX_CHUNKS:
            try:
                event = self._next()
            except (ExchangeFailed, TimeoutError):
                if not parts:
                    raise
                break  # it is raised again
            if type(event) is not h11.Data:
                self._ended = type(event) is h11.EndOfMessage
                break
            parts.append(event.data)
        else:
            self._has_more = True
        return b"".join(parts)

    def _next(self) -> _Event:
        """Return the next event in what was received; NEED_DATA: there is none yet."""
        while True:
            if self._failure is not None:
                raise self._failure
            try:
                event = self._parser.next_event()
            except h11.RemoteProtocolError as error:
                _, was_over = self._parser.trailing_data
                self._failure = Disconnected(is_answered=self._is_answered) if was_over else NotHTTP(f"the answer is no HTTP: {error}")
                raise self._failure from error
            if event is not h11.NEED_DATA:
                return event
            if self._received:
                self._feed()
            elif self._error is not None:
                self._failure = Disconnected(self._error, is_answered=self._is_answered)
            elif self._is_over:
                self._parser.receive_data(b"")
            else:
                return event

    def _feed(self) -> None:
        data = self._received.popleft()
        self._size -= len(data)
        self._parser.receive_data(data)
        if self._size <= BUFFER_BYTES:
            self._read_on()

    def _read_on(self) -> None:
        if not self._reads and self._transport is not None:
            self._reads = True
            self._heard_at = self._loop.time()
            self._transport.resume_reading()

    def _can_go_on(self) -> bool:
        """Return whether both sides have said everything, and both would go on."""
        both = self._parser.our_state is h11.DONE and self._parser.their_state is h11.DONE
        return both and not (self._received or self._parser.trailing_data[0] or self._is_over or self._failure)

    async def _wait(self) -> None:
        """Wait until something has happened."""
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _watch_time(self, deadline: float | None, idle_seconds: float | None) -> None:
        if deadline is not None:
            self._deadline = self._loop.call_at(deadline, self.fail, TimeoutError("the answer did not come in time"))
        if idle_seconds is not None:
            self._heard_at = self._loop.time()
            self._quiet = self._loop.call_later(idle_seconds, self._look, idle_seconds)

    def _forget_time(self) -> None:
        for each in (self._deadline, self._quiet):
            if each is not None:
                each.cancel()
        self._deadline = self._quiet = None

    def _look(self, idle_seconds: float) -> None:
        """Give up a server that is silent; it may be us who do not listen."""
        now = self._loop.time()
        if self._reads and now - self._heard_at >= idle_seconds:
            self.fail(TimeoutError(f"nothing came for {idle_seconds:g} s"))
            return
        again = self._heard_at + idle_seconds if self._reads else now + idle_seconds
        self._quiet = self._loop.call_at(again, self._look, idle_seconds)
