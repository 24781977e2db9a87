"""Fair use of the event loop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable


class Turn:
    """Bounds a task's steps, by number and time, before it must let other tasks run."""

    __slots__ = ("_clock", "_done", "_ends", "_most", "_seconds")

    def __init__(self, seconds: float, *, most: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._done = 0
        self._ends = clock() + seconds

    def is_over(self) -> bool:
        """Return whether this turn's steps or time are spent; else count a step."""
        if self._done >= self._most or self._clock() >= self._ends:
            return True
        self._done += 1
        return False

    async def another(self) -> None:
        """Let other tasks run; start the next turn, with one step counted."""
        await asyncio.sleep(0)
        self._done, self._ends = 1, self._clock() + self._seconds

    async def rest(self) -> None:
        """Count a step; first let other tasks run if this turn is over."""
        if self.is_over():
            await self.another()
