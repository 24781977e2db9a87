"""The relay processes of a target: one per migration, and one for connections that name none."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from handler.relays.process import RelayProcess

IDLE_SECONDS: Final = 5.0
"""How long a process outlives its last connection: the report that the guest left comes by one more."""
UNNAMED: Final = ""


class TargetProcesses:
    """Relay processes by uid of the migration; :data:`UNNAMED` for other connections. :meth:`run` ends idle ones."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self.running: dict[str, RelayProcess] = {}
        self._connections: Counter[str] = Counter()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._idle: asyncio.Queue[str] = asyncio.Queue()

    @contextmanager
    def of(self, migration_uid: str) -> Iterator[RelayProcess]:
        """Yield the relay process for a connection of this migration; it runs at least as long as the context."""
        if (timer := self._timers.pop(migration_uid, None)) is not None:
            timer.cancel()
        self._connections[migration_uid] += 1
        try:
            yield self.running.setdefault(migration_uid, RelayProcess())
        finally:
            self._connections[migration_uid] -= 1
            if not self._connections[migration_uid]:
                del self._connections[migration_uid]
                later = asyncio.get_running_loop().call_later
                self._timers[migration_uid] = later(self._idle_seconds, self._idle.put_nowait, migration_uid)

    async def run(self) -> None:
        """End processes that had no connection for ``idle_seconds``, until cancelled."""
        while True:
            migration_uid = await self._idle.get()
            if not self._connections[migration_uid]:
                self._timers.pop(migration_uid, None)
                await self.running.pop(migration_uid, RelayProcess()).end()

    async def end(self) -> None:
        """End all processes and their connections."""
        for timer in self._timers.values():
            timer.cancel()
        while self.running:
            await self.running.popitem()[1].end()
