"""Listens with an aiohttp application for few clients, such as the kubelet and Prometheus.

Unauthenticated clients could hold all connections, because aiohttp does not limit the time for a request's head. So if there are too many,
the oldest one without a running answer, of the address with the most, is closed for a new one, which may be the kubelet's, or else the new
one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

MOST: Final = 64
HANDSHAKE_SECONDS: Final = 10.0
SHUTDOWN_SECONDS: Final = 1.0
"""For running answers, and for clients to close their connections."""


class Connections:
    """Limits a server's connections; those that answer an authorized client stay open."""

    def __init__(self, most: int | None = None) -> None:
        self.most = MOST if most is None else most
        self._answered: Counter[asyncio.BaseProtocol] = Counter()

    @contextmanager
    def answering(self, request: web.Request) -> Iterator[None]:
        """Keep an authorized client's connection from :meth:`make_room` while the block runs."""
        self._answered[request.protocol] += 1
        try:
            yield
        finally:
            self._answered[request.protocol] -= 1
            self._answered += Counter()

    def make_room(self, served: web.Server) -> bool:
        """Close connections outside of :meth:`answering` until there is room for one more; return whether there is."""
        open_ones = [each for each in served.connections if each.transport is not None and not each.transport.is_closing()]
        while len(open_ones) >= self.most:
            idle = [each for each in open_ones if each not in self._answered]
            if not idle:
                return False
            addresses = Counter(_address(each) for each in idle)
            most = max(addresses.values())
            oldest = next(each for each in idle if addresses[_address(each)] == most)
            oldest.force_close()
            open_ones.remove(oldest)
        return True


def _address(connection: RequestHandler) -> str:
    peer = connection.transport.get_extra_info("peername") if connection.transport is not None else None
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


class _Refused(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


@asynccontextmanager
async def listening(
    app: web.Application,
    host: str | None,
    port: int,
    tls: ssl.SSLContext | None = None,
    *,
    connections: Connections | None = None,
    shutdown: float | None = None,
    handshake: float = HANDSHAKE_SECONDS,
) -> AsyncIterator[int]:
    """Serve the application while the block runs; yields the port, a free one for 0.

    ``host`` None means all addresses, ``tls`` None plain HTTP. ``shutdown`` limits running answers at the end, ``handshake`` the TLS
    handshake, in seconds. Raises OSError if the address cannot be bound.
    """
    room = connections or Connections()
    timeout = SHUTDOWN_SECONDS if shutdown is None else shutdown
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=timeout)
    await runner.setup()
    try:
        served = runner.server
        if served is None:
            raise RuntimeError("the application has no server after its setup")

        def newcomer() -> asyncio.Protocol:
            return served() if room.make_room(served) else _Refused()

        greeting, goodbye = (handshake, SHUTDOWN_SECONDS) if tls is not None else (None, None)
        server = await asyncio.get_running_loop().create_server(
            newcomer, host, port, ssl=tls, backlog=128, ssl_handshake_timeout=greeting, ssl_shutdown_timeout=goodbye
        )
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            server.close()
    finally:
        await runner.cleanup()
