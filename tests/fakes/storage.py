"""Memory storage with outages, lost progress, and slowness."""

import asyncio

from storage.memory import MemoryStorage, _Watch
from storage.port import Page, Unavailable


class UnreliableStorage(MemoryStorage):
    """With ``is_out``, calls raise Unavailable; ``delay`` and a cleared ``answering`` delay calls, a cleared ``connected`` watches."""

    def __init__(self) -> None:
        super().__init__()
        self.is_out = False
        self.delay = 0.0
        self.answering = asyncio.Event()
        self.answering.set()
        self.connected = asyncio.Event()
        self.connected.set()
        self.calls: dict[str, int] = {}

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        self._count("range")
        return await super().range(prefix, start=start, limit=limit, revision=revision)

    async def revision(self) -> int:
        self._count("revision")
        return await super().revision()

    async def request_progress(self) -> None:
        self._count("request_progress")
        await super().request_progress()

    def _count(self, call: str) -> None:
        self.calls[call] = self.calls.get(call, 0) + 1

    async def _turn(self) -> None:
        await self.answering.wait()
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.is_out:
            raise Unavailable("the store is out")
        await super()._turn()

    async def _until_woken(self, watch: _Watch) -> None:
        await super()._until_woken(watch)
        await self.connected.wait()
