"""The target's side: a TLS server that leads to the sockets of pods that expect a migration."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apiserver.apis.virt import streams
from certs.reloading import ServerTls
from handler.identity.trust import NodeOf, Stranger
from handler.pods import places
from handler.pods.launcher import Disconnected, Refused
from handler.relays import copying, header

logger = logging.getLogger(__name__)

HEADER_SECONDS: Final = 10.0

Let = Callable[[bool], Awaitable[None]]
"""Lets the guest that arrived run, or only makes it the target's (True: its user paused it). Raises ``Disconnected`` or ``Refused``."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A migration to this node: its pod here, its source node, and the call that runs the guest once the source says that it left."""

    pod_uid: str
    source_node: str
    release: Let


class Incoming:
    """Serves relays of other nodes' virt-handlers until cancelled. :meth:`expect` opens the door for one migration."""

    def __init__(
        self,
        tls: ServerTls,
        node_of: NodeOf,
        *,
        host: str = "",
        port: int = streams.RELAY_PORT,
        kubelet: Path = places.KUBELET_DIRECTORY,
    ) -> None:
        self.port = port
        self.ready = asyncio.Event()
        self._tls = tls
        self._node_of = node_of
        self._host = host
        self._kubelet = kubelet
        self._expected: dict[str, Expected] = {}
        self._connections: dict[str, set[asyncio.StreamWriter]] = {}
        self._all: set[asyncio.StreamWriter] = set()

    def expect(self, migration_uid: str, expected: Expected) -> None:
        """Let connections of this migration through from its source node to its pod."""
        self._expected[migration_uid] = expected

    def forget(self, migration_uid: str) -> None:
        """Let no more through. What is open stays: the source's libvirt may still be reading how it ended, and then closes it."""
        self._expected.pop(migration_uid, None)

    def judge_again(self) -> None:
        """End the connections of nodes that are not believed any more."""
        for writer in list(self._all):
            try:
                self._node_of(writer.transport)
            except Stranger as error:
                logger.warning("end a relay: %s", error)
                writer.transport.abort()

    async def run(self) -> None:
        """Listen until cancelled."""
        server = await asyncio.start_server(
            self._serve,
            self._host or None,
            self.port,
            ssl=self._tls.context,
            limit=copying.CHUNK_BYTES,
            ssl_handshake_timeout=HEADER_SECONDS,
        )
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        try:
            await self._tls.run()
        finally:
            self.ready.clear()
            server.close()
            self._expected.clear()
            await copying.drained(self._all)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._all.add(writer)
        try:
            node = self._node_of(writer.transport)
            async with asyncio.timeout(HEADER_SECONDS):
                line = await reader.readuntil(b"\n")
            wanted = header.decode(line) if len(line) <= header.MAX_BYTES else None
            expected = self._expected.get(wanted.migration_uid) if wanted is not None else None
            if wanted is None or expected is None:
                why = f"migration {wanted.migration_uid} is not expected here" if wanted else "no header"
                logger.warning("refused a relay of node %s: %s", node, why)
            elif node != expected.source_node:
                why = f"migration {wanted.migration_uid} comes from {expected.source_node}"
                logger.warning("refused a relay of node %s: %s", node, why)
            elif isinstance(wanted, header.Release):
                await self._release(wanted, expected, writer)
            else:
                await self._lead(wanted, expected.pod_uid, (reader, writer))
        except Stranger as error:
            logger.warning("refused a relay: %s", error)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            logger.warning("a relay ended: %s", str(error) or type(error).__name__)
        finally:
            self._all.discard(writer)
            writer.close()

    async def _release(self, wanted: header.Release, expected: Expected, writer: asyncio.StreamWriter) -> None:
        try:
            await expected.release(wanted.paused)
        except (Disconnected, Refused) as error:
            logger.warning("migration %s cannot be released yet: %s", wanted.migration_uid, error)
            writer.write(header.refusal(str(error)))
        else:
            writer.write(header.OK)
        async with asyncio.timeout(HEADER_SECONDS):
            await writer.drain()

    async def _lead(self, wanted: header.Header, pod_uid: str, connection: copying.Connection) -> None:
        open_ones = self._connections.setdefault(wanted.migration_uid, set())
        if len(open_ones) >= copying.MAX_CONNECTIONS:
            logger.warning("refused a relay: migration %s has %d connections already", wanted.migration_uid, len(open_ones))
            return
        with places.run_directory(pod_uid, self._kubelet) as directory:
            link = places.connect(directory, header.TARGET_SOCKETS[wanted.channel])
        open_ones.add(connection[1])
        _notice_vanished_peer(connection[1])
        try:
            await copying.both_ways(connection, await asyncio.open_unix_connection(sock=link, limit=copying.CHUNK_BYTES))
        finally:
            open_ones.discard(connection[1])
            if not open_ones:
                self._connections.pop(wanted.migration_uid, None)


def _notice_vanished_peer(writer: asyncio.StreamWriter) -> None:
    """End the silence of a node that is gone after half a minute."""
    link: socket.socket = writer.get_extra_info("socket")
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    ):
        link.setsockopt(level, option, value)
