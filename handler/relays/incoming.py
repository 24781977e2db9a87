"""The target's side of relays: a TLS server in front of pods that expect a migration.

A connection goes to the relay process of the migration that its TLS protocol names (``header.protocol``), before it is verified, so a
tenant's connections fill no other migration's process.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apiserver.apis.virt.places import streams
from certs.reloading import ServerTls
from handler.identity.trust import NodeOf, Untrusted
from handler.pods import places
from handler.pods.launcher import Disconnected, LauncherRefused
from handler.relays import client_hello, copying, header
from handler.relays.process import Connection
from handler.relays.target_processes import UNNAMED, TargetProcesses

logger = logging.getLogger(__name__)

ReleaseGuest = Callable[[bool], Awaitable[None]]
"""Resumes the arrived guest, or only takes it over (True: a user paused it). Raises Disconnected, LauncherRefused."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts and limits of connections from other nodes."""

    handshake_seconds: float = 10.0
    header_seconds: float = 10.0
    last_seconds: float = 60.0
    """The source's libvirt reads a migration's result and closes its connections at once."""
    handshakes_per_address: int = 32
    handshakes: int = 128
    pending_per_node: int = 32
    """Connections that have not reached a pod. Each takes a thread of a relay process."""


DEFAULT_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Expected:
    """A migration to this node: its pod here, its source node, and how to resume the guest after its release."""

    pod_uid: str
    source_node: str
    release: ReleaseGuest


class Incoming:
    """Serves relays of expected migrations from their source nodes' virt-handlers, until cancelled."""

    def __init__(
        self,
        tls: ServerTls,
        node_of: NodeOf,
        *,
        host: str = "",
        port: int = streams.RELAY_PORT,
        kubelet: Path = places.KUBELET_DIRECTORY,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.port = port
        self.ready = asyncio.Event()
        self._limits = limits
        self._tls = tls
        self._node_of = node_of
        self._host = host
        self._kubelet = kubelet
        self._expected: dict[str, Expected] = {}
        self._connections: dict[header.Header, set[Connection]] = {}
        self._all: set[Connection] = set()
        self._handshakes: Counter[str] = Counter()
        """By address."""
        self._pending: Counter[str] = Counter()
        """Connections after the handshake that have not reached a pod, by node."""
        self._processes = TargetProcesses()

    def expect(self, migration_uid: str, expected: Expected) -> None:
        """Admit connections of this migration from its source node to its pod."""
        self._expected[migration_uid] = expected

    def forget(self, migration_uid: str) -> None:
        """Admit no more connections of this migration.

        Open ones end after ``Limits.last_seconds``, because they lead to libvirtd of the guest's present pod.
        """
        if self._expected.pop(migration_uid, None) is not None:
            asyncio.get_running_loop().call_later(self._limits.last_seconds, self._end, migration_uid)

    def _end(self, migration_uid: str) -> None:
        if migration_uid in self._expected:
            return
        for connection in [
            each for wanted, open_ones in self._connections.items() if wanted.migration_uid == migration_uid for each in open_ones
        ]:
            logger.warning("closing a relay of migration %s, which has ended", migration_uid)
            connection.abort()

    def verify_again(self) -> None:
        """End the connections of nodes that are no longer trusted."""
        for connection in list(self._all):
            try:
                self._node_of(connection.transport)
            except Untrusted as error:
                logger.warning("closing a relay: %s", error)
                connection.abort()

    async def run(self) -> None:
        """Serve relays of other nodes until cancelled, then end them; ``ready`` is set while it listens."""
        listener = _listener(self._host, self.port)
        self.port = listener.getsockname()[1]
        self.ready.set()
        try:
            async with asyncio.TaskGroup() as connections:
                try:
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(self._tls.run())
                        tasks.create_task(self._processes.run())
                        tasks.create_task(self._accept(listener, connections))
                finally:
                    self.ready.clear()
                    listener.close()
                    self._expected.clear()
                    await copying.drained(self._all)
        finally:
            await self._processes.end()

    async def _accept(self, listener: socket.socket, connections: asyncio.TaskGroup) -> None:
        async for link in copying.accepted(listener):
            connections.create_task(self._serve(link))

    async def _serve(self, link: socket.socket) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                await self._pass_on(*await self._shake_hands(stack, link), stack)
        except Untrusted as error:
            logger.warning("refused a relay: %s", error)
        except (OSError, TimeoutError, ValueError) as error:
            logger.warning("a relay ended: %s", str(error) or type(error).__name__)
        except Exception:  # one connection must not end the others
            logger.exception("a relay failed")

    async def _shake_hands(self, stack: contextlib.AsyncExitStack, link: socket.socket) -> tuple[Connection, str]:
        with link:
            try:
                address = str(link.getpeername()[0])
            except OSError:
                address = ""
            if self._handshakes[address] >= self._limits.handshakes_per_address or self._handshakes.total() >= self._limits.handshakes:
                raise Untrusted(f"{address} has {self._handshakes[address]} handshakes open, all together have {self._handshakes.total()}")
            with _counted(self._handshakes, address):
                async with asyncio.timeout(self._limits.handshake_seconds):
                    claimed = header.claimed(client_hello.protocols(await _first_record(link)))
                    claimed = claimed if claimed in self._expected else UNNAMED
                    process = stack.enter_context(self._processes.of(claimed))
                    connection = await stack.enter_async_context(process.connection(link, self._tls.material))
                    await connection.shaken()
        return connection, claimed

    async def _pass_on(self, connection: Connection, claimed: str, stack: contextlib.AsyncExitStack) -> None:
        node = self._node_of(connection.transport)
        self._all.add(connection)
        stack.callback(self._all.discard, connection)
        if self._pending[node] >= self._limits.pending_per_node:
            raise Untrusted(f"node {node} already has {self._limits.pending_per_node} unassigned connections")
        with _counted(self._pending, node):
            pod_uid, wanted = await self._led(node, connection, claimed)
        if wanted is not None:
            await self._lead(wanted, pod_uid, connection)

    async def _led(self, node: str, connection: Connection, claimed: str) -> tuple[str, header.Header | None]:
        """Return an admitted connection's pod (uid) and Header; header None: it was refused, or its release request is finished.

        ``claimed``: the migration's uid in the connection's TLS protocol. Raises TimeoutError.
        """
        async with asyncio.timeout(self._limits.header_seconds):
            line = await connection.line(header.MAX_BYTES)
        wanted = header.decode(line)
        expected = self._expected.get(wanted.migration_uid) if wanted is not None else None
        if wanted is None or expected is None:
            why = f"migration {wanted.migration_uid} is not expected here" if wanted else "no header"
            logger.warning("refused a relay connection of node %s: %s", node, why)
        elif node != expected.source_node:
            why = f"migration {wanted.migration_uid} comes from {expected.source_node}"
            logger.warning("refused a relay connection of node %s: %s", node, why)
        elif claimed not in (wanted.migration_uid, UNNAMED):
            logger.warning("refused a relay of node %s: it is of migration %s, and said %s", node, wanted.migration_uid, claimed)
        elif isinstance(wanted, header.Release):
            await self._release(wanted, expected, connection)
        else:
            return expected.pod_uid, wanted
        return "", None

    async def _release(self, wanted: header.Release, expected: Expected, connection: Connection) -> None:
        try:
            await expected.release(wanted.paused)
        except (Disconnected, LauncherRefused) as error:
            logger.warning("cannot release migration %s yet: %s", wanted.migration_uid, error)
            answer = header.refusal(str(error))
        else:
            answer = header.OK
        async with asyncio.timeout(self._limits.header_seconds):
            await connection.answer(answer)

    async def _lead(self, wanted: header.Header, pod_uid: str, connection: Connection) -> None:
        open_ones = self._connections.setdefault(wanted, set())
        if len(open_ones) >= copying.MAX_CONNECTIONS:
            logger.warning(
                "refused a relay connection %s: migration %s already has %d", wanted.channel, wanted.migration_uid, len(open_ones)
            )
            return
        open_ones.add(connection)
        try:
            with places.run_directory(pod_uid, self._kubelet) as directory:
                pod = places.connect(directory, header.TARGET_SOCKETS[wanted.channel])
            why = await connection.lead(pod)
            logger.info("relay %s of migration %s ended: %s", wanted.channel, wanted.migration_uid, why)
        finally:
            open_ones.discard(connection)
            if not open_ones:
                self._connections.pop(wanted, None)


@contextlib.contextmanager
def _counted(counter: Counter[str], key: str) -> Iterator[None]:
    counter[key] += 1
    try:
        yield
    finally:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]


async def _first_record(link: socket.socket) -> bytes:
    """Return a client's first TLS record, and leave it in the socket; empty for other data, incomplete if the client ends."""
    try:
        size = client_hello.record_bytes(await _peeked(link, client_hello.RECORD_HEADER_BYTES))
        return await _peeked(link, size) if size else b""
    finally:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def _peeked(link: socket.socket, size: int) -> bytes:
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
    loop.add_reader(link, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(link)
    return link.recv(size, socket.MSG_PEEK)


def _listener(host: str, port: int) -> socket.socket:
    if host or not socket.has_dualstack_ipv6():
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    else:
        try:
            listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            listener = socket.create_server(("", port))  # IPv6 is disabled
    listener.settimeout(0)
    return listener
