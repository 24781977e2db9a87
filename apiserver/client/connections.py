"""A pool of connections; :mod:`apiserver.client.exchange` runs the requests.

Guarantees:

* at most ``limit`` exchanges per origin run at once; others wait in order;
* a connection that the server closed, or on which it sent unexpected bytes, is not reused;
* only idempotent requests (RFC 9110, 9.2.2) are repeated, if a pooled connection ended before any answer;
* leaving a response starts the next exchange, on the same connection after a complete body.
"""

from __future__ import annotations

import asyncio
import functools
import re
import ssl
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar
from urllib.parse import quote

from multidict import CIMultiDict

from apiserver.client import dialling
from apiserver.client.answers import Head
from apiserver.client.exchange import Connection, Timeouts
from apiserver.client.transport import Disconnected, NotHTTP, NotTrusted, TooLong, Unreachable

REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_T = TypeVar("_T")
_NO_TIMEOUTS: Final = Timeouts()
_NAME: Final = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_VISIBLE: Final = "".join(chr(each) for each in range(0x21, 0x7F) if chr(each) not in '"#<>\\^`{|}')


class Origin(NamedTuple):
    """A server, and its required identity."""

    host: str
    """Without brackets."""
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    """Required certificate name, if not the host."""

    @property
    def authority(self) -> str:
        """Value of the Host field."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls is not None else 80) else f"{host}:{self.port}"


class Response:
    """A response with an unread body, for one task. A context manager that ends the exchange.

    Reading raises ExchangeFailed, TimeoutError.
    """

    def __init__(self, head: Head, connection: Connection, left: Callable[[], object]) -> None:
        self.status = head.status
        self.reason = head.reason.decode("latin-1")
        self._head = head
        self._connection: Connection | None = connection
        self._left = left

    @property
    def certificate(self) -> Mapping[str, object]:
        """The server's verified certificate; empty without TLS or after the body."""
        return self._connection.certificate if self._connection is not None else {}

    @functools.cached_property
    def headers(self) -> CIMultiDict[str]:
        """The header fields, parsed on first use."""
        return CIMultiDict((name.decode("ascii"), value.decode("utf-8", "surrogateescape")) for name, value in self._head.fields)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def __aiter__(self) -> Self:
        """Iterate over the body's pieces."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece of the body."""
        if self._connection is not None:
            if piece := await self._connection.piece():
                return piece
            self.release()  # others may wait for the connection
        raise StopAsyncIteration

    async def read(self, limit: int) -> bytes:
        """Return the whole body; raises TooLong above ``limit`` bytes."""
        parts, size = [], 0
        async for part in self:
            size += len(part)
            if size > limit:
                raise TooLong(limit)
            parts.append(part)
        return b"".join(parts)

    def release(self) -> None:
        """End the exchange, keeping or closing its connection; safe to repeat."""
        if self._connection is not None:
            self._connection = None
            self._left()


class _Host:
    __slots__ = ("idle", "origin", "turns", "users")

    def __init__(self, origin: Origin, limit: int) -> None:
        self.origin = origin
        self.turns = asyncio.Semaphore(limit or sys.maxsize)
        self.users = 0
        self.idle: deque[Connection] = deque()
        """Most recently used last."""


class Connections:
    """Sends requests over pooled connections. An async context manager; safe for concurrent tasks."""

    def __init__(self, *, keep_seconds: float, limit: int = 0, resolve: Callable[[str], str] | None = None) -> None:
        """Create an empty pool.

        ``keep_seconds``: lifetime of idle connections. ``limit``: concurrent exchanges per origin; 0: unlimited. ``resolve``
        returns the address to dial; default: the host.
        """
        self._keep_seconds = keep_seconds
        self._limit = limit
        self._resolve = resolve
        self._hosts: dict[Origin, _Host] = {}
        self._open: set[Connection] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._emptied = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Fail all exchanges, and wait until all connections are closed."""
        self._is_closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for each in tuple(self._open):
            each.fail(Disconnected())
        while self._open:
            self._emptied.clear()
            await self._emptied.wait()

    def give_up(self, prefix: str, seconds: float) -> None:
        """Fail each exchange if its target begins with ``prefix`` and nothing came for so long: TimeoutError."""
        for each in tuple(self._open):
            if each.target.startswith(prefix) and each.silent_seconds() >= seconds:
                each.fail(TimeoutError(f"given up after {seconds:g} s"))

    async def send(
        self,
        origin: Origin,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        timeouts: Timeouts = _NO_TIMEOUTS,
        refusal: Callable[[Mapping[str, object]], str] | None = None,
    ) -> Response:
        """Send a request and return its response, with any status; the caller must release it.

        ``target``: path and query, quoted. ``headers``: without Host and Content-Length. ``timeouts``: in total and per step.
        ``refusal`` returns why not to trust the server's certificate, or empty, before anything is sent. Raises NotTrusted,
        ExchangeFailed, TimeoutError.
        """
        request = _request(origin, method, target, headers, body)
        deadline = _after(timeouts.total_seconds)
        while True:
            host, connection, is_fresh = await self._joined(origin, timeouts.connect_seconds, deadline)
            try:
                if refusal is not None and (why := refusal(connection.certificate)):
                    raise NotTrusted(why)
                connection.target = target
                asked = connection.ask(request, body or b"", deadline, timeouts.idle_seconds)
                head = await (asked if timeouts.answer_seconds is None else _in_time(asked, _after(timeouts.answer_seconds)))
            except BaseException as error:  # even if cancelled
                connection.abort()
                self._leave(host, connection)
                is_late = not is_fresh and isinstance(error, Disconnected) and not error.is_answered
                if not is_late or self._is_closed or method not in REPEATABLE:
                    raise
            else:
                return Response(head, connection, functools.partial(self._leave, host, connection))

    async def _joined(self, origin: Origin, seconds: float | None, deadline: float | None) -> tuple[_Host, Connection, bool]:
        host = self._hosts.get(origin)
        if host is None:
            host = self._hosts[origin] = _Host(origin, self._limit)
        host.users += 1
        until = min((each for each in (_after(seconds), deadline) if each is not None), default=None)
        try:
            return host, *await self._connection(host, until)
        except BaseException as error:  # even if cancelled
            host.users -= 1
            self._drop(host)
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"timed out connecting to {origin.authority}") from error
            raise

    async def _connection(self, host: _Host, until: float | None) -> tuple[Connection, bool]:
        # No timer without a wait.
        await (_in_time(host.turns.acquire(), until) if host.turns.locked() else host.turns.acquire())
        try:
            if self._is_closed:
                raise Disconnected
            while host.idle:
                if (kept := host.idle.pop()).is_usable:
                    return kept, False
            return await _in_time(self._dialled(host), until), True
        except BaseException:  # even if cancelled
            host.turns.release()
            raise

    async def _dialled(self, host: _Host) -> Connection:
        origin = host.origin
        try:
            found = await dialling.addresses(self._resolve(origin.host) if self._resolve is not None else origin.host, origin.port)
            made = await dialling.first(found, functools.partial(self._dial, host))
            if origin.tls is not None:
                await made.secure(origin.tls, origin.server_name or origin.host)
        except OSError as error:
            raise Unreachable(origin.authority, error) from error
        if made.is_usable:
            self._open.add(made)
        if self._is_closed:
            made.abort()
        return made

    async def _dial(self, host: _Host, address: str) -> Connection:
        gone = functools.partial(self._lost, host)
        _, made = await asyncio.get_running_loop().create_connection(lambda: Connection(gone), address, host.origin.port)
        return made

    def _leave(self, host: _Host, connection: Connection) -> None:
        if connection.finish() and not self._is_closed:
            self._keep(host, connection)
        host.turns.release()
        host.users -= 1
        self._drop(host)

    def _keep(self, host: _Host, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.kept_at = loop.time()
        host.idle.append(connection)
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(self._keep_seconds, self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep_timer = None
        for host in tuple(self._hosts.values()):
            while host.idle and host.idle[0].kept_at + self._keep_seconds <= loop.time():
                host.idle.popleft().close()
            self._drop(host)
        if kept := [host.idle[0].kept_at for host in self._hosts.values() if host.idle]:
            self._sweep_timer = loop.call_at(min(kept) + self._keep_seconds, self._sweep)

    def _lost(self, host: _Host, connection: Connection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._emptied.set()
        if connection in host.idle:
            host.idle.remove(connection)
            self._drop(host)

    def _drop(self, host: _Host) -> None:
        """Forget an unused origin, because new TLS contexts make new origins."""
        if not host.users and not host.idle and self._hosts.get(host.origin) is host:
            del self._hosts[host.origin]


async def _in_time(awaited: Awaitable[_T], until: float | None) -> _T:
    async with asyncio.timeout_at(until):
        return await awaited


def _after(seconds: float | None) -> float | None:
    return None if seconds is None else asyncio.get_running_loop().time() + seconds


def _request(origin: Origin, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    fields = {"Host": origin.authority, **headers}
    if body is not None:
        fields["Content-Length"] = str(len(body))
    head = f"{method} {quote(target or '/', safe=_VISIBLE)} HTTP/1.1\r\n"
    for name, value in fields.items():
        # No pattern: for a token it would take longer than the rest.
        if _NAME.fullmatch(name) is None or not (value.isascii() and value.replace("\t", " ").isprintable()):
            raise NotHTTP(f"the request cannot be sent: its header field {name!r}")
        head += f"{name}: {value}\r\n"
    return f"{head}\r\n".encode("ascii")
