"""Listens with an aiohttp application for few clients: the kubelet, Prometheus, and whoever else finds the port.

A newcomer always gets in, because it may be the kubelet; if that makes too many, the oldest connection goes. Nobody is named here by a
certificate, and aiohttp gives a request's head all the time it likes, so whoever held connections open without a word could otherwise
hold all of them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

MOST: Final = 64
"""Connections at once."""
HANDSHAKE_SECONDS: Final = 10.0
SHUTDOWN_SECONDS: Final = 1.0
"""For answers under way at the end, and for the goodbye of a client that has to go, which would have half a minute for it otherwise."""


@asynccontextmanager
async def listening(app: web.Application, host: str | None, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve the application while the block runs; yields the port, which for a 0 is any that was free.

    Raises:
        OSError: the address cannot be bound.
    """
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        served = runner.server
        if served is None:
            raise RuntimeError("the application has no server after its setup")

        def newcomer() -> asyncio.Protocol:
            open_ones = [each for each in served.connections if each.transport is not None and not each.transport.is_closing()]
            for oldest in open_ones[: max(0, len(open_ones) + 1 - MOST)]:
                oldest.force_close()
            return served()

        handshake, goodbye = (HANDSHAKE_SECONDS, SHUTDOWN_SECONDS) if tls is not None else (None, None)
        server = await asyncio.get_running_loop().create_server(
            newcomer, host, port, ssl=tls, backlog=128, ssl_handshake_timeout=handshake, ssl_shutdown_timeout=goodbye
        )
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            server.close()
    finally:
        await runner.cleanup()
