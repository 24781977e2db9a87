"""One server from its first handshake to its last byte.

Shutdown: not ready → wait until load balancers notice → close the listener, refuse new requests → end watches and streams,
one by one → finish requests → close connections.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterator
from typing import Any, Final

from apiserver.endpoints.filters.chain import Chain, Phase
from apiserver.endpoints.http.handshakes import Handshakes
from apiserver.endpoints.http.owner import Settings
from apiserver.endpoints.http.server import Server
from apiserver.endpoints.verbs.connecting import Streams
from apiserver.endpoints.verbs.watching import Watches
from apiserver.metrics.instruments import Read
from apiserver.server import connections
from apiserver.server.connections import ConnectionOptions
from certs.reloading import ServerTls

logger = logging.getLogger(__name__)

SETTINGS: Final = Settings(idle_seconds=200.0)
"""Longer than the aggregator's 90 s: the client must close idle connections."""
HANDSHAKE_SECONDS: Final = 10.0
WATCHES_END_WITHIN: Final = 2.0
DRAIN_SECONDS: Final = 20.0


class Listener:
    """Accepts connections over TLS, and serves their requests by ``chain``."""

    def __init__(
        self,
        chain: Chain,
        watches: Watches,
        streams: Streams,
        options: ConnectionOptions,
        settings: Settings = SETTINGS,
        watches_end_within: float = WATCHES_END_WITHIN,
    ) -> None:
        self._chain = chain
        self._options = options
        self._settings = settings
        self._watches_end_within = watches_end_within
        self._watches = watches
        self._streams = streams
        self._server: Server | None = None
        self._handshakes: Handshakes | None = None
        self._socket: asyncio.Server | None = None

    async def listen(self, host: str, port: int, tls: ServerTls) -> tuple[str, int]:
        """Begin to accept connections; return host and port, the actual one for port 0. Raises OSError."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_report)
        self._server = Server(self._chain, self._settings)
        self._handshakes = Handshakes(
            lambda: tls.newest, self._server, connections.limits(self._options, connections.raise_descriptors(), HANDSHAKE_SECONDS)
        )
        self._socket = await loop.create_server(self._handshakes, host, port, backlog=1024)
        address = self._socket.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    def families(self) -> Iterator[Read]:
        """Yield the connection metrics, once listening."""
        if self._handshakes is not None:
            yield from connections.families(self._handshakes)

    async def stop(self, *, delay: float, not_ready: Callable[[], None]) -> None:
        """Shut down: call ``not_ready``; after ``delay`` seconds refuse new requests, end watches and streams, and finish requests.

        After ``DRAIN_SECONDS``, abort these.
        """
        not_ready()
        logger.info("stopping: not ready any more", extra={"delay_seconds": delay})
        await asyncio.sleep(delay)
        if self._socket is not None:
            self._socket.close()
        self._chain.phase = Phase.DRAINING
        logger.info("draining", extra={"watches": len(self._watches)})
        self._streams.end_all()
        self._watches.end_all(within=self._watches_end_within)
        if self._server is not None:
            await self._server.shutdown(DRAIN_SECONDS)
        if self._handshakes is not None:
            self._handshakes.abort()
        logger.info("stopped")


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, ssl.SSLError | ConnectionError | TimeoutError):
        logger.debug("a connection failed", extra={"error": str(error)})
        return
    loop.default_exception_handler(context)
