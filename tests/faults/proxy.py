"""A TCP proxy that loses connections on request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

CHUNK = 64 << 10


class Proxy:
    """A TCP proxy with its own ``port``, to the constructor's. Between ``block`` and ``unblock``, data waits."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._connections: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        self.port = 0
        self.carried = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            self.drop()
            self._open.set()
            await server.wait_closed()

    def drop(self) -> int:
        dropped = len(self._connections)
        for writer in self._connections:
            writer.transport.abort()
        return dropped

    def block(self) -> None:
        self._open.clear()

    def unblock(self) -> None:
        self._open.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.carried += 1
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._connections |= {writer, back}
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._copy(reader, back))
                tasks.create_task(self._copy(there, writer))
        except* OSError:
            pass
        finally:
            for each in (writer, back):
                self._connections.discard(each)
                each.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
