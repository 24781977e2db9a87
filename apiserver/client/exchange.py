"""One connection to a server, and HTTP/1.1 exchanges on it, parsed by :mod:`apiserver.client.answers`.

One task sends (:meth:`Connection.ask`), reads the body (:meth:`Connection.piece`) and ends the exchange, even early
(:meth:`Connection.finish`). Guarantees:

* buffers are bounded: an unread body stops the server, and a server that does not read stops us;
* a response during the request stops the sending, and counts;
* input is read before a broken connection's error;
* after an error, a cancellation or an incomplete body, the connection is not reused.

Without compression, redirects or cookies.
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
"""Of a body, before reading pauses."""
READ_BYTES: Final = 64 << 10
"""Received per iteration; asyncio would allocate 256 KiB per read."""
PIECE_BYTES: Final = 64 << 10
"""Of a request's body, passed to the transport at once."""
MAX_CHUNKS: Final = 1000
"""Parsed before other tasks run; a chunk may have one byte."""
_SLICE_CHUNKS: Final = MAX_CHUNKS // 2
_SLICE_BYTES: Final = _SLICE_CHUNKS * len(b"1\r\nx\r\n")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of waits before a TimeoutError; None: unlimited."""

    total_seconds: float | None = None
    """From the request to the response's end."""
    connect_seconds: float | None = None
    """For a turn and a connection."""
    idle_seconds: float | None = None
    """Between pieces of the response."""
    answer_seconds: float | None = None
    """Limit from the request to the response's head."""


class Connection(asyncio.BufferedProtocol):
    """A connection and its current exchange."""

    __slots__ = (
        "_answer", "_buffer", "_deadline", "_error", "_failure", "_has_more", "_heard_at", "_is_answered", "_is_over", "_loop",
        "_on_lost", "_quiet", "_reads", "_received", "_size", "_transport", "_unsent", "_waiter", "_writes", "is_busy", "kept_at", "target",
    )  # fmt: skip

    def __init__(self, on_lost: Callable[[Connection], object]) -> None:
        """``on_lost`` is called once, when an established connection ends."""
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._answer = Answer(has_body=True)
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(READ_BYTES))  # not shared between threads' loops
        self._received: deque[memoryview] = deque()
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._reads = self._writes = True
        self._unsent = memoryview(b"")
        self._is_over = False
        self._error: Exception | None = None  # why it sends no more
        self._failure: Exception | None = None  # why reading fails
        self._is_answered = False  # some of the response came
        self._has_more = False  # unread input may remain
        self._deadline: asyncio.TimerHandle | None = None
        self._quiet: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self.is_busy = False
        self.kept_at = 0.0
        """When it became idle."""
        self.target = ""
        """Path and query of the last request."""

    @property
    def is_usable(self) -> bool:
        """True if it is open and no exchange runs."""
        return not (self.is_busy or self._is_over or self._transport is None or self._transport.is_closing())

    @property
    def certificate(self) -> Mapping[str, object]:
        """The server's verified certificate; empty without TLS."""
        tls = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        return tls.getpeercert() or {} if tls is not None else {}

    async def secure(self, tls: ssl.SSLContext, server_name: str) -> None:
        """Do the TLS handshake; raises OSError."""
        plain = self._transport
        if plain is None:
            raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
        try:
            self._transport = await self._loop.start_tls(plain, self, tls, server_hostname=server_name)
        except BaseException:
            plain.abort()  # a cancellation would leave it open
            raise

    async def ask(self, head: bytes, body: bytes, deadline: float | None, idle_seconds: float | None) -> Head:
        """Send a request and return the response's head. Read the body by :meth:`piece`; at last, even after an error, call :meth:`finish`.

        Raises ExchangeFailed; TimeoutError after the deadline (loop time), or ``idle_seconds`` without input.
        """
        self.is_busy = True
        self._is_answered = self._has_more = False
        self._answer = Answer(has_body=not head.startswith(b"HEAD "))
        if self._transport is None or self._is_over:
            raise Disconnected(self._error)
        self._heard_at = self._loop.time()
        self._watch_time(deadline, idle_seconds)
        self._transport.write(head + body[:PIECE_BYTES])
        self._unsent = memoryview(body)[PIECE_BYTES:]
        return await self._head(self._transport)

    async def piece(self) -> bytes:
        """Return the next part of the body, empty at its end. Raises ExchangeFailed, TimeoutError."""
        if self._has_more:
            await asyncio.sleep(0)
        while not (part := self._part()) and not self._answer.is_whole:
            await self._wait()
        return part

    def finish(self) -> bool:
        """End the exchange; return whether the connection is reusable, else close it."""
        self._forget_time()
        with contextlib.suppress(ExchangeFailed, TimeoutError):
            while self._part():
                pass  # the rest may already be buffered
        self.is_busy = False
        if not self._answer.is_whole or self._unsent or not self._writes:
            self.abort()
            return False
        if self._answer.is_last or self._received or self._is_over or self._failure:
            self.close()
            return False
        self._read_on()
        return True

    def silent_seconds(self) -> float:
        """Return the seconds since the request or the last input; 0 outside an exchange, and while nothing is read."""
        return self._loop.time() - self._heard_at if self.is_busy and self._reads else 0.0

    def fail(self, error: Exception) -> None:
        """Close the connection at once, failing a running exchange with ``error``."""
        self._failure = self._failure or error
        self.abort()
        self._wake()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection after pending output."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; enable TCP keepalive."""
        self._transport = cast("asyncio.Transport", transport)
        keep_alive(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return a memoryview, because asyncio's slices would copy a bytearray."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Queue input; outside an exchange, close the connection."""
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
        """Record the end of input; the transport then closes."""
        self._is_over = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """Record the end, and call ``on_lost``."""
        self._is_over, self._error, self._transport = True, error, None
        self._wake()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Stop writing: the transport's buffer is full."""
        self._writes = False

    def resume_writing(self) -> None:
        """Continue writing."""
        self._writes = True
        self._wake()

    async def _head(self, transport: asyncio.Transport) -> Head:
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
        parts = self._answer.parts
        try:
            while len(parts) <= MAX_CHUNKS - _SLICE_CHUNKS and not self._answer.is_whole and self._take():
                pass
        except (ExchangeFailed, TimeoutError):
            if not parts:
                raise
        self._has_more = bool(self._received)
        part = b"".join(parts)
        parts.clear()
        return part

    def _take(self) -> bool:
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
            self._deadline = self._loop.call_at(deadline, self.fail, TimeoutError("timed out waiting for the response"))
        if idle_seconds is not None:
            self._quiet = self._loop.call_later(idle_seconds, self._look, idle_seconds)

    def _forget_time(self) -> None:
        for each in (self._deadline, self._quiet):
            if each is not None:
                each.cancel()
        self._deadline = self._quiet = None

    def _look(self, idle_seconds: float) -> None:
        now = self._loop.time()
        if self._reads and now - self._heard_at >= idle_seconds:
            self.fail(TimeoutError(f"nothing came for {idle_seconds:g} s"))
            return
        again = self._heard_at + idle_seconds if self._reads else now + idle_seconds
        self._quiet = self._loop.call_at(again, self._look, idle_seconds)
