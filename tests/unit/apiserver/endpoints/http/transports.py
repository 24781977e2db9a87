from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from apiserver.endpoints.http.allowances import UNVERIFIED, VERIFIED
from apiserver.endpoints.http.connection import Connection
from apiserver.endpoints.http.messages import Request, Response
from apiserver.endpoints.http.owner import Settings
from apiserver.endpoints.http.server import Server


class Shown:
    def __init__(self, certificate: bytes) -> None:
        self._certificate = certificate

    def getpeercert(self, binary_form: bool = False) -> bytes:
        assert binary_form
        return self._certificate


class FakeTransport(asyncio.Transport):
    """Keeps the written bytes; ``full``: the client does not read."""

    def __init__(self, shown: Shown | None = None) -> None:
        super().__init__()
        self._shown = shown
        self.written = bytearray()
        self.protocol: Connection | None = None
        self.reading = True
        self.closed = False
        self.full = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 4711), "ssl_object": self._shown}.get(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.written += data
        if self.full and self.protocol is not None:
            self.protocol.pause_writing()

    def drained(self) -> None:
        self.full = False
        assert self.protocol is not None
        self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.written) if self.full else 0

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._lost)

    def abort(self) -> None:
        self.close()

    def _lost(self) -> None:
        assert self.protocol is not None
        self.protocol.connection_lost(None)


QUICK = Settings(
    unverified=replace(UNVERIFIED, head_seconds=0.3, stall_seconds=0.3),
    verified=replace(VERIFIED, head_seconds=0.3, stall_seconds=0.3),
    idle_seconds=0.9,
    linger_seconds=0.2,
    late_seconds=0.2,
    tick_seconds=0.02,
)
Answer = Callable[[Request], Awaitable[Response]]


class Line:
    def __init__(self, handler: Answer, settings: Settings | None = None, *, certificate: bytes = b"", beside: Line | None = None) -> None:
        self.server: Server = beside.server if beside else Server(handler, settings or QUICK)
        self.connection = self.server()
        self.transport = FakeTransport(Shown(certificate) if certificate else None)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    async def send(self, *data: bytes) -> bytes:
        for each in data:
            self.connection.data_received(each)
            await settle()
        return self.take()

    def take(self) -> bytes:
        taken = bytes(self.transport.written)
        self.transport.written.clear()
        return taken

    def is_closed(self) -> bool:
        return self.transport.closed

    async def end(self) -> None:
        await self.server.shutdown(0)
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
