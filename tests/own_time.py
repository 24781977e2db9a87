"""Timeouts in a test's own processor time, because a loaded machine gives it a fraction.

The tested code runs in the test's event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

TICK_SECONDS: Final = 0.005


def own(wall: float, processor: float) -> float:
    """Return a turn's own seconds, at most ``wall``: processor seconds plus two ticks, because timers are late."""
    return min(wall, processor + 2 * TICK_SECONDS)


def clocks() -> tuple[float, float]:
    return time.monotonic(), time.process_time()


async def promptly(condition: Callable[[], object], seconds: float, clocks: Callable[[], tuple[float, float]] = clocks) -> None:
    left, (wall, processor) = seconds, clocks()
    while not condition():
        await asyncio.sleep(TICK_SECONDS)
        before = wall, processor
        wall, processor = clocks()
        left -= own(wall - before[0], processor - before[1])
        if left < 0:
            raise TimeoutError(f"not within {seconds} s of the process's own time")


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)  # noqa: TID251  # it is awaited below
    try:
        await promptly(task.done, seconds)
    except BaseException:  # its work must end
        task.cancel()
        await asyncio.wait([task])
        raise
    return await task
