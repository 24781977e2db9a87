"""``kubectl virt port-forward``: local ports, or standard input and output, that lead to a guest's ports."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from apiserver.apis.meta import errors
from apiserver.apis.virt.places.streams import Forward, port_of, protocol_of
from apiserver.kubectl import messages, proxy, streams, terminal, verbs
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure, describe

NO_UPGRADE: Final = "Upgrade request required"
"""virt-api's answer to a GET without websocket, after all other checks."""
IDLE_SECONDS: Final = 60.0
"""Then the sender is forgotten."""
MAX_SENDERS: Final = 16
MAX_WAITING: Final = 64
"""Per sender; further ones are lost, as in a network."""
_PORTS: Final = re.compile(r"(?:(?P<protocol>[a-z]+)/)?(?:(?P<local>[0-9]*):)?(?P<remote>[0-9]+)")

Load = Callable[[], Awaitable[Access]]


@dataclass(frozen=True, slots=True)
class Local:
    """A local port, and the guest's port that it leads to."""

    port: int
    """0: any that is free."""
    forward: Forward


def parse(text: str) -> Local:
    """Parse ``[PROTOCOL/][LOCAL:]PORT``: 22, 2222:22, :22 (any free local port), udp/5353:53. Raises ValueError."""
    found = _PORTS.fullmatch(text)
    remote, protocol = port_of(found["remote"]) if found else None, protocol_of((found and found["protocol"]) or "tcp")
    if found is None or remote is None or protocol is None:
        raise ValueError(text)
    local = remote if found["local"] is None else port_of(found["local"]) if found["local"].strip("0") else 0
    if local is None:
        raise ValueError(text)
    return Local(local, Forward(protocol, remote))


class Port(proxy.Proxy):
    """Leads local connections or datagrams to one port of a guest."""

    stream = "portforward"
    ends_by_empty = True

    def __init__(self, name: str, load: Load, forward: Forward) -> None:
        super().__init__(name, load)
        self.what = f"{forward.protocol.upper()} port {forward.port}"
        self._forward = forward
        self.datagrams = Datagrams(self)

    def opened(self, access: Access) -> AbstractAsyncContextManager[ClientConnection]:
        """Return a context manager that opens a websocket to the port."""
        return streams.opened(access, self._name, self.stream, forward=self._forward)

    async def serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a program's connection, and say so as kubectl."""
        print(f"Handling connection for {writer.get_extra_info('sockname')[1]}", flush=True)
        await super().serve_one(reader, writer)


class Datagrams(asyncio.DatagramProtocol):
    """A local UDP port: each sender has its own websocket, until idle."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._new: asyncio.Queue[Any] = asyncio.Queue()
        """Senders without a websocket."""
        self._senders: dict[Any, asyncio.Queue[bytes]] = {}
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]  # typeshed: of any kind
        """Keep the transport."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:  # noqa: ANN401  an address of any family
        """Queue a datagram for its sender's websocket; drop it above the limits."""
        waiting = self._senders.get(addr)
        if waiting is None and len(self._senders) < MAX_SENDERS:
            waiting = self._senders[addr] = asyncio.Queue(MAX_WAITING)
            self._new.put_nowait(addr)
        if waiting is not None and not waiting.full():
            waiting.put_nowait(data)

    async def run(self) -> None:
        """Serve senders until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                addr = await self._new.get()
                tasks.create_task(self._serve(addr, self._senders[addr]))

    async def _serve(self, addr: Any, waiting: asyncio.Queue[bytes]) -> None:  # noqa: ANN401  as above
        try:
            async with self._port.opened_again() as connection, asyncio.TaskGroup() as copies:
                copies.create_task(self._answer(connection, addr))
                async with asyncio.timeout(IDLE_SECONDS) as limit:
                    while True:
                        await connection.send(await waiting.get())
                        limit.reschedule(asyncio.get_running_loop().time() + IDLE_SECONDS)
        except* (streams.UpgradeFailed, streams.Unreachable, Failure) as refused:
            sys.stderr.write(f"{messages.first(refused)}\n")
        except* TimeoutError:
            pass
        except* ConnectionClosed as closed:
            first = messages.first(closed)
            self._port.ended(streams.end_of(first) if isinstance(first, ConnectionClosed) else None)
        finally:
            self._senders.pop(addr, None)

    async def _answer(self, connection: ClientConnection, addr: Any) -> None:  # noqa: ANN401  as above
        while True:
            message = await connection.recv()
            if isinstance(message, bytes) and self._transport is not None:
                self._transport.sendto(message, addr)


async def check(access: Access, name: str, forward: Forward) -> None:
    """Raise Failure if virt-api refuses to forward the port; open no connection to the guest."""
    doing = f"forward a port of virtual machine {access.namespace}/{name}"
    try:
        await verbs.answered(access, "GET", streams.path(access, name, "portforward", forward), doing)
    except errors.StatusError as error:
        if error.message != NO_UPGRADE:
            raise messages.of_status(error, doing) from error


async def forward_all(name: str, load: Load, ports: Sequence[Local], address: str) -> int:
    """Forward ports until cancelled; return 1 after printing a failure."""
    failures: list[BaseException] = []
    try:
        access = await load()
        for each in ports:
            await check(access, name, each.forward)
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            for each in ports:
                port = Port(name, load, each.forward)
                local = await _listen(stack, port, each, address)
                print(f"Forwarding from {address}:{local} -> {each.forward.port}{'/udp' * (each.forward.protocol == 'udp')}", flush=True)
                tasks.create_task(port.lost())
                tasks.create_task(port.datagrams.run())
    except* Failure as group:
        failures.append(messages.first(group))
    if failures:
        sys.stderr.write(f"{failures[0]}\n")
    return 1


async def _listen(stack: AsyncExitStack, port: Port, local: Local, address: str) -> int:
    try:
        if local.forward.protocol == "udp":
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_datagram_endpoint(lambda: port.datagrams, local_addr=(address, local.port))
            stack.callback(transport.close)
            return int(transport.get_extra_info("sockname")[1])
        server = await asyncio.start_server(port.serve_one, address, local.port)
        stack.callback(server.close)
        return int(server.sockets[0].getsockname()[1])
    except OSError as error:
        raise Failure(f"error: cannot listen on {address}:{local.port}: {describe(error)}") from error


async def on_standard_streams(name: str, load: Load, forward: Forward, *, stdin: int = 0, stdout: int = 1) -> int:
    """Join standard input and output with a port; return 0 once the guest closes it, 1 if cut off.

    Raises Failure if it cannot be opened.
    """
    ends: list[streams.End] = []
    try:
        async with streams.opened(await load(), name, "portforward", forward=forward) as connection, asyncio.TaskGroup() as copies:
            reading = copies.create_task(_send(connection, stdin, forward))
            async for message in connection:
                if isinstance(message, bytes):
                    await terminal.write(stdout, message)
            reading.cancel()
    except* (streams.UpgradeFailed, streams.Unreachable) as refused:
        first = messages.first(refused)
        raise (first.failure if isinstance(first, streams.UpgradeFailed | streams.Unreachable) else Failure(str(first))) from None
    except* ConnectionClosed as closed:
        ends = [streams.end_of(each) for each in closed.exceptions if isinstance(each, ConnectionClosed)]
    if ends and not ends[0].wanted:
        sys.stderr.write(f"the connection was cut off: {ends[0]}\n")
        return 1
    return 0


async def _send(connection: ClientConnection, stdin: int, forward: Forward) -> None:
    while content := await terminal.read(stdin, proxy.CHUNK_BYTES):
        await connection.send(content)
    if forward.protocol == "tcp":
        await connection.send(b"")
