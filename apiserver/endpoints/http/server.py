"""All connections of one listening socket: deadlines and shutdown."""

from __future__ import annotations

import asyncio

from apiserver.endpoints.http.connection import Connection
from apiserver.endpoints.http.heads import Heads, ProtocolError
from apiserver.endpoints.http.owner import Handler, Owned, Settings
from apiserver.endpoints.http.turns import Turns


class Server:
    """Makes the protocols of connections, for ``loop.create_server`` or :class:`~.handshakes.Handshakes`."""

    def __init__(self, handler: Handler, settings: Settings | None = None) -> None:
        self.handler = handler
        self.settings = settings or Settings()
        self.heads = Heads(max_fields=self.settings.verified.fields)
        self.unverified_heads = Heads(0, max_fields=self.settings.unverified.fields)
        self.turns = Turns(self.settings.unverified_requests)
        self.draining = False
        self._connections: set[Owned] = set()
        self._long: dict[Owned, None] = {}  # unfinished heads, oldest first
        self._empty = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(self.settings.tick_seconds, self._tick)

    def __call__(self) -> Connection:
        """Return the protocol of a new connection."""
        return Connection(self)

    def __len__(self) -> int:
        return len(self._connections)

    def opened(self, connection: Owned) -> None:
        """Register a connection; while draining, close it soon."""
        self._connections.add(connection)
        self._empty.clear()
        if self.draining:
            connection.drain()

    def closed(self, connection: Owned) -> None:
        """Remove a connection."""
        self._connections.discard(connection)
        self._long.pop(connection, None)
        if not self._connections:
            self._empty.set()

    def lengthens(self, connection: Owned) -> None:
        """Register a long, incomplete head; above ``long_heads``, refuse the oldest."""
        self._long[connection] = None
        if len(self._long) > self.settings.long_heads:
            oldest = next(iter(self._long))
            del self._long[oldest]
            oldest.refuse(ProtocolError("too many unfinished requests with long heads", 431))

    def shortens(self, connection: Owned) -> None:
        """Unregister a long head: it is complete."""
        self._long.pop(connection, None)

    async def shutdown(self, seconds: float) -> None:
        """Close connections after their running answer, idle ones soon, and wait for that; abort the rest after ``seconds``."""
        self.draining = True
        for connection in self._connections:
            connection.drain()
        try:
            async with asyncio.timeout(seconds):
                while self._connections:
                    self._empty.clear()
                    await self._pause()
        except TimeoutError:
            pass
        for connection in list(self._connections):
            connection.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(min(self.settings.tick_seconds, self.settings.late_seconds / 2)):
                await self._empty.wait()
        except TimeoutError:
            self._check()

    def _tick(self) -> None:
        self._timer = self.loop.call_later(self.settings.tick_seconds, self._tick)
        self._check()

    def _check(self) -> None:
        now = self.now()
        for connection in list(self._connections):
            connection.check(now)
