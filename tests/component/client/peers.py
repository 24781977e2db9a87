from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from apiserver.client.connections import Connections, Origin, Response
from apiserver.client.exchange import Timeouts

HEADERS = {"User-Agent": "test"}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.requests: list[bytes] = []
        self.is_over = False

    async def hear(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.requests.append(head)
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        return await self.reader.readexactly(int(fields.get(b"content-length", 0)))

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def abort(self) -> None:
        if not self.is_over:
            self.writer.transport.abort()


Act = Callable[[Peer], Awaitable[None]]


class Server:
    def __init__(self, *acts: Act) -> None:
        self._acts = iter(acts)
        self._act = acts[0]
        self.peers: list[Peer] = []
        self.port = 0
        self.tls: ssl.SSLContext | None = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self.peers.append(peer)
        self._act = next(self._acts, self._act)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._act(peer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            peer.is_over = True

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Origin]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield Origin("127.0.0.1", self.port, self.tls)
        finally:
            await asyncio.sleep(0.02)  # asyncio loses a connection in accepting
            server.close()
            for each in self.peers:
                each.abort()
            await asyncio.sleep(0.01)


def answering(*answers: bytes, then: Act | None = None) -> Act:

    async def act(peer: Peer) -> None:
        for answer in answers:
            await peer.hear()
            await peer.say(answer)
        if then is not None:
            await then(peer)
            return
        while True:
            await peer.hear()
            await peer.say(answers[-1])

    return act


async def silent(peer: Peer) -> None:
    while await peer.reader.read(1 << 16):
        pass


async def gone(peer: Peer) -> None:
    await peer.hear()


@asynccontextmanager
async def world(*acts: Act, limit: int = 0, keep_seconds: float = 10) -> AsyncIterator[tuple[Server, Origin, Connections]]:
    server = Server(*acts)
    async with (
        asyncio.timeout(10),
        server.serving() as origin,
        Connections(keep_seconds=keep_seconds, limit=limit) as connections,
    ):
        yield server, origin, connections


async def send(connections: Connections, origin: Origin, method: str = "GET", body: bytes | None = None, **timeouts: float) -> Response:
    return await connections.send(origin, method, "/x?y=z", headers=HEADERS, body=body, timeouts=Timeouts(**timeouts))


async def ask(connections: Connections, origin: Origin, method: str = "GET", body: bytes | None = None, **timeouts: float) -> bytes:
    with await send(connections, origin, method, body, **timeouts) as response:
        return await response.read(1 << 20)


async def closed(connections: Connections, count: int = 0) -> None:
    while len(connections._open) > count:
        await asyncio.sleep(0.001)


async def gone_at_once(peer: Peer) -> None:
    pass
