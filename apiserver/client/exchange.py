"""One connection to a server, and the exchange of HTTP/1.1 on it; what its bytes mean is read by :mod:`apiserver.client.answers`.

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
from typing import Final, cast

from apiserver.client.answers import Answer, Head
from apiserver.client.transport import Disconnected, ExchangeFailed, keep_alive

BUFFER_BYTES: Final = 256 << 10
"""Bytes of a body that wait for its reader before the connection is not read from any more."""
READ_BYTES: Final = 64 << 10
"""Received at once, before others have a turn of the event loop. Without a buffer of ours 256 KiB would be allocated for each read."""
PIECE_BYTES: Final = 64 << 10
"""Of a request's body are handed to the connection at once."""
MAX_CHUNKS: Final = 1000
"""Chunks of an answer that are read before others have a turn: a server may send them a byte each."""
_SLICE_CHUNKS: Final = MAX_CHUNKS // 2
_SLICE_BYTES: Final = _SLICE_CHUNKS * len(b"1\r\nx\r\n")
"""Of what was received are read at once: no more than so many chunks."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of waits before a TimeoutError; None: for ever."""

    total_seconds: float | None = None
    """From the request to the end of the answer."""
    connect_seconds: float | None = None
    """For a connection, and for the turn to have one."""
    idle_seconds: float | None = None
    """For the answer and each further piece of it."""


class Connection(asyncio.BufferedProtocol):
    """A connection, and the exchange that is under way on it."""

    __slots__ = (
        "_answer", "_buffer", "_deadline", "_error", "_failure", "_has_more", "_heard_at", "_is_answered", "_is_over", "_loop",
        "_on_lost", "_quiet", "_reads", "_received", "_size", "_transport", "_unsent", "_waiter", "_writes", "is_busy", "kept_at",
    )  # fmt: skip

    def __init__(self, on_lost: Callable[[Connection], object]) -> None:
        """Prepare it; ``on_lost`` is called once when it is gone, if it ever was there."""
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._answer = Answer(has_body=True)
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(READ_BYTES))  # its own: there may be loops in several threads
        self._received: deque[memoryview] = deque()
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._reads = self._writes = True
        self._unsent = memoryview(b"")
        self._is_over = False  # the server says no more
        self._error: Exception | None = None  # why it says no more
        self._failure: Exception | None = None  # why nobody may read on
        self._is_answered = False  # something of the answer came
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

    async def ask(self, head: bytes, body: bytes, deadline: float | None, idle_seconds: float | None) -> Head:
        """Send a request and return the head of its answer.

        Raises:
            ExchangeFailed: there is no answer.
            TimeoutError: neither until the deadline, of the loop's time, nor within ``idle_seconds``.
        """
        self.is_busy = True
        self._is_answered = self._has_more = False
        self._answer = Answer(has_body=not head.startswith(b"HEAD "))
        if self._transport is None or self._is_over:
            raise Disconnected(self._error)
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
        while not (part := self._part()) and not self._answer.is_whole:
            await self._wait()
        return part

    def finish(self) -> bool:
        """End the exchange. Return whether there can be another one; if not, the connection is closed."""
        self._forget_time()
        with contextlib.suppress(ExchangeFailed, TimeoutError):
            while self._part():
                pass  # it may all be here
        self.is_busy = False
        if not self._answer.is_whole or self._unsent or not self._writes:
            self.abort()
            return False
        if self._answer.is_last or self._received or self._is_over or self._failure:
            self.close()
            return False
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

    def get_buffer(self, sizehint: int) -> memoryview:
        """As asyncio says: a view, since asyncio goes on in a slice of it, which of a bytearray would be a copy."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """As asyncio says. A server that speaks unasked is not asked again."""
        if not self.is_busy:
            self._is_over = True
            self.abort()
            return
        self._is_answered = True
        self._heard_at = self._loop.time()
        self._received.append(memoryview(bytes(self._buffer[:nbytes])))
        self._size += nbytes
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

    async def _head(self, transport: asyncio.Transport) -> Head:
        """Send what is left of the request until the head of the answer is there."""
        while (head := self._answer.head) is None:
            if self._take():
                continue
            if self._unsent and self._writes:
                transport.write(self._unsent[:PIECE_BYTES])
                self._unsent = self._unsent[PIECE_BYTES:]
            else:
                await self._wait()
        return head

    def _part(self) -> bytes:
        """Return what is here of the body. Small chunks that came together are one piece."""
        parts = self._answer.parts
        try:
            while len(parts) <= MAX_CHUNKS - _SLICE_CHUNKS and not self._answer.is_whole and self._take():
                pass
        except (ExchangeFailed, TimeoutError):
            if not parts:
                raise  # else it is raised again
        self._has_more = bool(self._received)
        part = b"".join(parts)
        parts.clear()
        return part

    def _take(self) -> bool:
        """Read a slice of what was received, or that there will be no more. Return whether there was either."""
        if self._failure is not None:
            raise self._failure
        try:
            if self._received:
                self._answer.take(self._slice())
            elif not self._is_over:
                return False
            elif self._error is not None or not self._answer.end():
                raise Disconnected(self._error, is_answered=self._is_answered)
        except ExchangeFailed as error:
            self._failure = error
            raise
        return True

    def _slice(self) -> memoryview:
        received = self._received.popleft()
        if len(received) > _SLICE_BYTES:
            self._received.appendleft(received[_SLICE_BYTES:])
            received = received[:_SLICE_BYTES]
        self._size -= len(received)
        if self._size <= BUFFER_BYTES:
            self._read_on()
        return received

    def _read_on(self) -> None:
        if not self._reads and self._transport is not None:
            self._reads = True
            self._heard_at = self._loop.time()
            self._transport.resume_reading()

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
