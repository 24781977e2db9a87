"""Promptness in the time that a test's own process had: on a machine with ten times as much to do it had a tenth.

What is tested runs in the loop of the test, so what holds that up is counted, and so is what it waits for. Where nothing else asks for the
processor this is the time of the clock on the wall.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

TICK_SECONDS: Final = 0.005


def own(wall: float, processor: float) -> float:
    """Return how much of a turn was the process's own: what it worked and what it meant to sleep, twice, since timers are late."""
    return min(wall, processor + 2 * TICK_SECONDS)


def clocks() -> tuple[float, float]:
    """Return the times of the wall and of the process."""
    return time.monotonic(), time.process_time()


async def promptly(condition: Callable[[], object], seconds: float, clocks: Callable[[], tuple[float, float]] = clocks) -> None:
    """Wait until it holds.

    Raises:
        TimeoutError: the process had more time than that.
    """
    left, (wall, processor) = seconds, clocks()
    while not condition():
        await asyncio.sleep(TICK_SECONDS)
        before = wall, processor
        wall, processor = clocks()
        left -= own(wall - before[0], processor - before[1])
        if left < 0:
            raise TimeoutError(f"not within {seconds} s of the process's own time")


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work gives.

    Raises:
        TimeoutError: the process had more time than that.
    """
    task = asyncio.ensure_future(work)  # noqa: TID251  # it is awaited below
    try:
        await promptly(task.done, seconds)
    except BaseException:  # the test is over, or cancelled: its work must not go on
        task.cancel()
        await asyncio.wait([task])
        raise
    return await task
