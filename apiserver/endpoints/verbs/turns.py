"""Turns of the event loop: whoever makes many things leaves others theirs in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

MOST: Final = 128
"""Things that are made in one turn."""
SECONDS: Final = 0.004
"""Time after which nothing more is begun in a turn, however few were made: an object may cost a thousand times what others do."""


class Turn:
    """A turn in which things are made one after the other."""

    __slots__ = ("_began", "_clock", "_made", "_most")

    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.perf_counter) -> None:
        self._most = most
        self._clock = clock
        self._made = 0
        self._began = clock()

    def is_over(self) -> bool:
        """Return whether the next thing has to wait; else it counts as made."""
        if self._made and (self._made >= self._most or self._clock() - self._began >= SECONDS):
            return True
        self._made += 1
        return False

    async def another(self) -> None:
        """Wait for another turn, in which the next thing is made."""
        await asyncio.sleep(0)
        self._made, self._began = 1, self._clock()
