"""Turns of the event loop: whoever does many things at once leaves others theirs in between."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable


class Turn:
    """A turn in which things are done one after the other, at most so many, and none is begun after its time, however few there were.

    Whoever bounds their number asks before each thing; where time alone counts, after it is as good.
    """

    __slots__ = ("_clock", "_done", "_ends", "_most", "_seconds")

    def __init__(self, seconds: float, *, most: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._done = 0
        self._ends = clock() + seconds

    def is_over(self) -> bool:
        """Return whether the next thing has to wait; else it counts as done."""
        if self._done >= self._most or self._clock() >= self._ends:
            return True
        self._done += 1
        return False

    async def another(self) -> None:
        """Wait for another turn, in which the next thing is done."""
        await asyncio.sleep(0)
        self._done, self._ends = 1, self._clock() + self._seconds

    async def rest(self) -> None:
        """Wait for another turn if this one is over."""
        if self.is_over():
            await self.another()
