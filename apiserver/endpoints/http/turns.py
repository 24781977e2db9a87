"""Run work for unauthenticated clients in small portions, fairly by address."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

Work = Callable[[], bool]
"""Returns whether it had anything to do."""


class Turns:
    """Runs at most ``most`` pieces of work per iteration of the event loop; addresses take turns."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._loop = asyncio.get_running_loop()
        # By address in order of turns; continued work first.
        self._going_on: dict[str, deque[Work]] = {}
        self._beginning: dict[str, deque[Work]] = {}
        self._handle: asyncio.Handle | None = None

    def __len__(self) -> int:
        return sum(len(each) for waiting in (self._going_on, self._beginning) for each in waiting.values())

    def wants(self, address: str, work: Work, *, goes_on: bool = False) -> None:
        """Queue ``work`` for the client ``address``; ``work`` returns whether it had anything to do.

        ``goes_on``: the work continues other work, and runs before work that begins.
        """
        (self._going_on if goes_on else self._beginning).setdefault(address, deque()).append(work)
        if self._handle is None:
            self._handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        left = self._most
        try:
            while left and (self._going_on or self._beginning):
                work = self._next()
                if work():
                    left -= 1
        finally:
            self._handle = self._loop.call_soon(self._turn) if self._going_on or self._beginning else None

    def _next(self) -> Work:
        turns = self._going_on or self._beginning
        address = next(iter(turns))
        waiting = turns.pop(address)
        work = waiting.popleft()
        if waiting:
            turns[address] = waiting
        return work
