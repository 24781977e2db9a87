"""Work for those who have not shown who they are: a little in each turn of the event loop, for one address after the other.

What is done for others waits no longer than that little takes, and a flood from one address delays itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

Work = Callable[[], bool]
"""Returns whether there was anything to do."""


class Turns:
    """Does ``most`` pieces of work in one turn."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._loop = asyncio.get_running_loop()
        # By address, whose turn it is first. What goes on with something is done before what begins something.
        self._going_on: dict[str, deque[Work]] = {}
        self._beginning: dict[str, deque[Work]] = {}
        self._handle: asyncio.Handle | None = None

    def __len__(self) -> int:
        """Return the number of pieces that wait."""
        return sum(len(each) for waiting in (self._going_on, self._beginning) for each in waiting.values())

    def wants(self, address: str, work: Work, *, goes_on: bool = False) -> None:
        """Do the work when its turn comes."""
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
        """Take the piece whose turn it is; its address is then behind all others."""
        turns = self._going_on or self._beginning
        address = next(iter(turns))
        waiting = turns.pop(address)
        work = waiting.popleft()
        if waiting:
            turns[address] = waiting
        return work
