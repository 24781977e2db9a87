"""One server from its first handshake to its last byte.

Stopping, in order: not ready → wait until load balancers noticed → listen no more, later requests are sent elsewhere → watches and streams
are ended, one by one → requests under way end → connections close.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from apiserver.endpoints.filters.chain import Chain, Phase
from apiserver.endpoints.verbs.connecting import Streams
from apiserver.endpoints.verbs.watching import Watches

logger = logging.getLogger(__name__)

KEEPALIVE_SECONDS: Final = 200.0
"""Longer than the 90 s for which the aggregator keeps an idle connection: the side that reuses it must be the one that closes it."""
HANDSHAKE_SECONDS: Final = 32.0
SILENCE_SECONDS: Final = 64.0
"""From the connection to the end of its first request's headers: who sends none holds a descriptor and costs nothing to authenticate."""
WATCHES_END_WITHIN: Final = 2.0
DRAIN_SECONDS: Final = 20.0
_MAX_LINE: Final = 64 << 10


class Listener:
    """Serves a chain over TLS."""

    def __init__(self, chain: Chain, watches: Watches, streams: Streams) -> None:
        self._chain = chain
        self._watches = watches
        self._streams = streams
        self._silent: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        self._server = web.Server(
            self._heard,
            handler_cancellation=True,
            keepalive_timeout=KEEPALIVE_SECONDS,
            access_log=None,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_LINE,
            lingering_time=5.0,
            auto_decompress=False,  # as in Go: a compressed body is not JSON, and cannot be a thousand times its size
        )
        self._socket: asyncio.Server | None = None

    async def listen(self, host: str, port: int, tls: ssl.SSLContext) -> tuple[str, int]:
        """Accept connections; return the address, with the port that a 0 became.

        Raises:
            OSError: the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_report)
        self._socket = await loop.create_server(
            self._connected, host, port, ssl=tls, backlog=1024, ssl_handshake_timeout=HANDSHAKE_SECONDS, ssl_shutdown_timeout=2.0
        )
        address = self._socket.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    def _connected(self) -> web.RequestHandler:
        """Make the protocol of a new connection, which is dropped when it stays silent."""
        protocol = self._server()
        self._silent[protocol] = asyncio.get_running_loop().call_later(SILENCE_SECONDS, self._drop, protocol)
        return protocol

    def _drop(self, protocol: web.RequestHandler) -> None:
        del self._silent[protocol]
        protocol.force_close()

    async def _heard(self, request: web.BaseRequest) -> web.StreamResponse:
        timer = self._silent.pop(request.protocol, None)
        if timer is not None:
            timer.cancel()
        return await self._chain(request)

    async def stop(self, *, delay: float, not_ready: Callable[[], None]) -> None:
        """Stop in the order that the module's text says."""
        not_ready()
        logger.info("stopping: not ready any more", extra={"delay_seconds": delay})
        await asyncio.sleep(delay)
        if self._socket is not None:
            self._socket.close()
        self._chain.phase = Phase.DRAINING
        logger.info("draining", extra={"watches": len(self._watches)})
        self._streams.end_all()
        self._watches.end_all(within=WATCHES_END_WITHIN)
        for timer in self._silent.values():
            timer.cancel()
        self._silent.clear()
        self._server.pre_shutdown()
        await self._server.shutdown(DRAIN_SECONDS)
        logger.info("stopped")


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what nobody awaited; clients that fail the handshake are no news."""
    error = context.get("exception")
    if isinstance(error, ssl.SSLError | ConnectionError | TimeoutError):
        logger.debug("a connection failed", extra={"error": str(error)})
        return
    loop.default_exception_handler(context)
