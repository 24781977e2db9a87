"""The source's side of relays: unix sockets in the source pod that lead to the target's virt-handler."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import forms, layout, names
from certs.reloading import ClientTls
from handler.identity.trust import NodeOf, Untrusted
from handler.pods import opening, places
from handler.relays import copying, header
from handler.relays.process import Connection, RelayProcess

logger = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 10.0
RELEASE_SECONDS: Final = 20.0
"""After this, the target's virt-handler or launcher is not working."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A migration's target: the node, and its virt-handler's address."""

    node: str
    address: str


def split_address(address: str) -> tuple[str, int]:
    """Return IP address and port of ``status.targetAddress`` (IPv6 in brackets). Raises ValueError unless pods can have this address."""
    found = forms.host_port(address)
    # loopback leads to this node's own relays, which have another certificate
    if found is None or (forms.pod_ip(str(found[0])) is None and not found[0].is_loopback):
        raise ValueError(f"{ascii(address)[:80]} is not the address of a relay: it must be a pod IP address and a port")
    return str(found[0]), found[1]


@contextmanager
def listening(directory: int, path: str, user: int = layout.USER_ID) -> Iterator[socket.socket]:
    """Yield a listening unix socket at ``path`` (one directory deep) below a pod's run directory, owned by the pod's user.

    It replaces an earlier attempt's socket, and is removed afterwards; links are refused. Raises OSError.
    """
    parent, name = path.split("/")
    with contextlib.suppress(FileExistsError):
        os.mkdir(parent, 0o700, dir_fd=directory)
    inside = opening.openat2(directory, parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, resolve=opening.NO_SYMLINKS)
    try:
        if os.fstat(inside).st_uid != user:
            os.chown(f"/proc/self/fd/{inside}", user, user)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=inside)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as server:
            server.bind(f"/proc/self/fd/{inside}/{name}")
            with descriptors.closing(opening.openat2(inside, name, os.O_PATH | os.O_NOFOLLOW, resolve=opening.NO_SYMLINKS)) as made:
                if not stat.S_ISSOCK(os.fstat(made).st_mode):
                    raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK), path)
                os.chown(f"/proc/self/fd/{made}", user, user)
            server.listen(copying.MAX_CONNECTIONS)
            yield server
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=inside)
        os.close(inside)


class Outgoing:
    """The relays of one migration away from this node. Raises ValueError for an invalid address, or a node that can have no certificate.

    No data is sent before a certificate proves that the untrusted address is the node's virt-handler.
    """

    def __init__(
        self,
        migration_uid: str,
        pod_uid: str,
        destination: Destination,
        tls: ClientTls,
        node_of: NodeOf,
        kubelet: Path = places.KUBELET_DIRECTORY,
        process: RelayProcess | None = None,
    ) -> None:
        self.migration_uid = migration_uid
        self.destination = destination
        self.ready = asyncio.Event()
        self._pod_uid = pod_uid
        self._host, self._port = split_address(destination.address)
        self._server_name = names.handler_server_name(destination.node)
        self._node_of = node_of
        self._open: set[Connection] = set()
        self._process = process or RelayProcess()
        self._tls = tls
        self._kubelet = kubelet

    async def run(self) -> None:
        """Relay from the source pod until cancelled; ``ready`` is set once its sockets exist. Raises OSError if they cannot be made."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._process.end)
            with places.run_directory(self._pod_uid, self._kubelet) as directory:
                listeners = {name: stack.enter_context(listening(directory, path)) for name, path in header.SOURCE_SOCKETS.items()}
            with contextlib.suppress(OSError):  # the first connection retries and reports the error
                await self._process.start()
            connections = await stack.enter_async_context(asyncio.TaskGroup())
            stack.push_async_callback(copying.drained, self._open)
            accepting = await stack.enter_async_context(asyncio.TaskGroup())
            for channel, listener in listeners.items():
                accepting.create_task(self._accept(listener, header.Header(self.migration_uid, channel), connections))
            self.ready.set()
            await asyncio.get_running_loop().create_future()

    async def release(self, *, paused: bool) -> None:
        """Tell the target's virt-handler to resume the guest, or (``paused``) to take it over paused. May be repeated.

        Raises OSError if the target cannot be reached, or not do it yet; TimeoutError without an answer; ValueError for an invalid uid.
        """
        first = header.Release(self.migration_uid, paused).encode()
        async with asyncio.timeout(RELEASE_SECONDS):
            reader, writer = await self._connect()
            try:
                writer.write(first)
                await writer.drain()
                answer = await reader.read(header.MAX_ANSWER_BYTES)
            finally:
                writer.close()
        if answer != header.OK:
            why = "".join(each for each in answer.decode(errors="replace") if each.isprintable())
            raise ConnectionRefusedError(why or "the target's virt-handler closed the connection")

    def verify_again(self) -> None:
        """End connections to a node that is not trusted any more."""
        for connection in list(self._open):
            try:
                self._node_of(connection.transport)
            except Untrusted as error:
                logger.warning("closing a relay of migration %s: %s", self.migration_uid, error)
                connection.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = self._tls.offering(header.protocol(self.migration_uid))
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=context, server_hostname=self._server_name)
        with descriptors.on_error(writer.transport.abort):
            self._verify(writer.transport)
        return reader, writer

    def _verify(self, transport: asyncio.BaseTransport) -> None:
        """Raise ConnectionRefusedError unless the other side is the target's virt-handler."""
        try:
            node = self._node_of(transport)
            if node != self.destination.node:  # independent of OpenSSL's options
                raise Untrusted(f"the peer is node {node}, not {self.destination.node}")
        except Untrusted as error:
            raise ConnectionRefusedError(str(error)) from error

    async def _accept(self, listener: socket.socket, first: header.Header, connections: asyncio.TaskGroup) -> None:
        pods: set[socket.socket] = set()
        async for pod in copying.accepted(listener):
            # each connection takes descriptors
            if len(pods) >= copying.MAX_CONNECTIONS:
                logger.debug("refused a relay connection: migration %s already has %d", self.migration_uid, len(pods))
                pod.close()
            else:
                pods.add(pod)
                connections.create_task(self._carry(pod, first, pods))

    async def _carry(self, pod: socket.socket, first: header.Header, pods: set[socket.socket]) -> None:
        why = ""
        try:
            async with contextlib.AsyncExitStack() as stack:
                stack.enter_context(pod)
                stack.callback(pods.discard, pod)
                async with asyncio.timeout(CONNECT_SECONDS):
                    link = await self._dialled()
                    leading = self._process.connection(link, self._tls.material, self._server_name, header.protocol(self.migration_uid))
                    connection = await stack.enter_async_context(leading)
                    await connection.shaken()
                self._verify(connection.transport)
                self._open.add(connection)
                stack.callback(self._open.discard, connection)
                why = await connection.lead(pod, first.encode())
        except (OSError, TimeoutError) as error:
            problem = str(error) or type(error).__name__
            logger.warning("relay %s of migration %s to %s failed: %s", first.channel, self.migration_uid, self.destination, problem)
        else:
            logger.info("relay %s of migration %s ended: %s", first.channel, self.migration_uid, why)

    async def _dialled(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        link = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        with descriptors.on_error(link.close):  # also on cancellation
            await asyncio.get_running_loop().sock_connect(link, (self._host, self._port))
        return link
