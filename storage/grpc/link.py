"""One connection with its socket: deadlines, pings, and one write per iteration of the loop."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from dataclasses import dataclass
from typing import Final, cast

from storage.grpc.calls import CANCELLED, UNAVAILABLE, Exchange, RpcError, Stream, UnaryCall
from storage.grpc.frames import ProtocolError
from storage.grpc.session import Session

SUSPICIOUS_SECONDS: Final = 0.25
"""An expired call abandons a connection without bytes for this long."""


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Times of keepalive pings, with gRPC's names."""

    time_seconds: float = 10.0
    """Without bytes during calls before a ping (etcd objects to more than one per 5 s)."""
    timeout_seconds: float = 5.0
    """For the answer."""


_KEEPALIVE: Final = Keepalive()


class Link(asyncio.Protocol):
    """A client's connection for gRPC calls, created by ``connect``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, keepalive: Keepalive = _KEEPALIVE) -> None:
        self._loop = loop
        self._keepalive = keepalive
        self._session = Session()
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = loop.create_future()
        self._flushing = False
        self._paused = False
        self._heard_at = loop.time()
        self._pinged_at = math.inf  # infinite: no ping since the server's last bytes
        self._look: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    @property
    def is_usable(self) -> bool:
        """True if new calls are possible."""
        return not self._session.is_leaving

    async def unary(self, block: bytes, message: bytes, deadline: float) -> bytes:
        """Send a message and return the answer by the loop time ``deadline``. Raises RpcError.

        ``block``: of :func:`headers.request`.
        """
        future: asyncio.Future[bytes] = self._loop.create_future()
        call = UnaryCall(block, message, deadline, future)
        self._session.open(call)
        if deadline < self._timer_at:
            self._arm(deadline)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        try:
            return await future
        except asyncio.CancelledError:
            self._given_up(call)
            raise

    def stream(self, block: bytes) -> Messages:
        """Open a stream of messages both ways; ``block``: of :func:`headers.request`."""
        stream = Stream(block)
        self._session.open(stream)
        self._flush_soon()
        return Messages(self, stream)

    def send(self, stream: Stream, message: bytes) -> None:
        """Send a message on a stream without waiting; ignored after the stream's end."""
        self._session.send(stream, message)
        self._flush_soon()

    def release(self, stream: Stream) -> None:
        """Let the server send more on a stream that was read completely."""
        self._session.release(stream)
        if self._session.has_output:
            self._flush_soon()

    def cancel(self, exchange: Exchange) -> None:
        """Cancel a call at the server; the caller, which gave it up, gets no error."""
        self._given_up(exchange)

    def leave(self) -> None:
        """Start no more calls; close after the running ones."""
        self._session.leave()
        self._close_if_idle()

    def abort(self, why: str) -> None:
        """Close at once; running calls fail with RpcError ``why``."""
        self._session.lost(why)
        if self._transport:
            self._transport.abort()

    async def until_ready(self) -> None:
        """Wait for the server's SETTINGS. Raises RpcError if the connection ends."""
        await self._ready

    def _given_up(self, exchange: Exchange) -> None:
        self._session.cancel(exchange)
        self._flush_soon()
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._session.is_leaving and self._session.is_idle and self._transport:
            self._flush()
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send our SETTINGS; end the connection if TLS did not select HTTP/2."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.family in (socket.AF_INET, socket.AF_INET6):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            self._end("the server does not speak HTTP/2")
            return
        self._look = self._loop.call_later(self._keepalive.time_seconds, self._keep_alive)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Process received bytes; end the connection after a violation."""
        session = self._session
        self._heard_at = self._loop.time()
        try:
            session.receive(data)
        except ProtocolError as error:
            self._flush()
            self._end(f"the server violates HTTP/2: {error}")
            return
        if session.has_output:
            self._flush()
        if not self._ready.done() and session.is_ready:
            self._ready.set_result(None)
        if session.is_leaving:
            self._close_if_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail running calls with RpcError."""
        self._end(f"the connection was lost{f': {exc}' if exc else ''}")

    def pause_writing(self) -> None:
        """Pause output: the server does not read."""
        self._paused = True

    def resume_writing(self) -> None:
        """Resume output."""
        self._paused = False
        self._flush()

    def _end(self, why: str) -> None:
        if not self._ready.done():
            self._ready.set_exception(RpcError(UNAVAILABLE, why, processed=False))
            self._ready.exception()  # mark as retrieved, in case no caller waits
        for timer in (self._timer, self._look):
            if timer:
                timer.cancel()
        self.abort(why)

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._session.has_output and not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._session.take())

    def _arm(self, deadline: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._expire) if deadline < math.inf else None

    def _expire(self) -> None:
        now = self._loop.time()
        self._timer = None
        if self._session.expire(now) and now - self._heard_at >= SUSPICIOUS_SECONDS:
            self._session.leave()
        self._flush()
        self._arm(self._session.next_deadline())
        self._close_if_idle()

    def _keep_alive(self) -> None:
        now = self._loop.time()
        wait = self._heard_at + self._keepalive.time_seconds - now
        if self._session.is_idle:
            self._pinged_at = math.inf
            wait = self._keepalive.time_seconds
        elif self._heard_at < self._pinged_at < math.inf:
            self._end(f"the server has sent nothing for {now - self._heard_at:.0f} s")
            return
        elif wait > 0:
            self._pinged_at = math.inf
        else:
            self._pinged_at = now
            self._session.ping()
            self._flush()
            wait = self._keepalive.timeout_seconds
        self._look = self._loop.call_later(max(wait, 0.05), self._keep_alive)


class Messages:
    """The caller's side of a stream: sends and reads gRPC messages."""

    def __init__(self, link: Link, stream: Stream) -> None:
        self._link = link
        self._stream = stream

    def send(self, message: bytes) -> None:
        """Send a message without waiting; ignored after the stream's end."""
        self._link.send(self._stream, message)

    async def read(self) -> bytes:
        """Wait for and return the next message. Raises RpcError if there are no more: OK at the proper end."""
        await self._stream.until_readable()
        message = self._stream.take()
        self._link.release(self._stream)
        return message

    def cancel(self) -> None:
        """Cancel the stream; a reader gets RpcError."""
        self._link.cancel(self._stream)
        self._stream.fail(RpcError(CANCELLED, "cancelled"))


async def connect(host: str, port: int, tls: ssl.SSLContext | None, server_name: str, keepalive: Keepalive = _KEEPALIVE) -> Link:
    """Return a ``Link`` to a server, after the server's SETTINGS. ``server_name``, if not empty, replaces ``host`` in TLS.

    Raises:
        OSError: it is unreachable, or its certificate wrong.
        RpcError: it does not speak HTTP/2, or closed the connection.
    """
    loop = asyncio.get_running_loop()
    if tls is not None:
        _, link = await loop.create_connection(lambda: Link(loop, keepalive), host, port, ssl=tls, server_hostname=server_name or host)
    else:
        _, link = await loop.create_connection(lambda: Link(loop, keepalive), host, port)
    return await _introduced(link)


async def connect_unix(path: str) -> Link:
    """Return a connection to a server on a Unix socket, after the server's SETTINGS. Raises OSError or RpcError as :func:`connect`."""
    loop = asyncio.get_running_loop()
    _, link = await loop.create_unix_connection(lambda: Link(loop), path)
    return await _introduced(link)


async def _introduced(link: Link) -> Link:
    try:
        await link.until_ready()
    except BaseException:
        link.abort("the caller no longer waits")
        raise
    return link
