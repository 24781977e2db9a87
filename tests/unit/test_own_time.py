from __future__ import annotations

import asyncio

import pytest

from tests.own_time import own, promptly, within


def test_own_time_excludes_processor_time_of_others() -> None:
    assert own(wall=0.006, processor=0.0) == 0.006, "it waited"
    assert own(wall=3.0, processor=3.0) == 3.0, "it was held up by its own work"
    assert own(wall=3.0, processor=0.5) == pytest.approx(0.51)


async def test_missing_event_is_late() -> None:
    with pytest.raises(TimeoutError, match="own time"):
        await promptly(lambda: False, 0.02)
    await promptly(lambda: True, 0.0)


async def test_work_returns_its_result_or_is_ended_when_late() -> None:
    ended = asyncio.Event()

    async def work(seconds: float, result: float) -> float:
        try:
            await asyncio.sleep(seconds)
        finally:
            ended.set()
        return 1 / result

    assert await within(1, work(0, 1)) == 1.0
    with pytest.raises(ZeroDivisionError):
        await within(1, work(0, 0))
    ended.clear()
    with pytest.raises(TimeoutError, match="own time"):
        await within(0.02, work(60, 1))
    assert ended.is_set()


async def test_work_ends_when_its_waiting_test_is_cancelled() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(within(60, work()))
        await begun.wait()
        task.cancel()
    assert ended.is_set()


@pytest.mark.parametrize(
    ("wall", "processor", "turns"), [(10.0, 0.0, 11), (0.3, 0.3, 1), (0.005, 0.0, 21)], ids=["others work", "it works", "it waits"]
)
async def test_each_turn_counts_the_own_time_of_the_process(wall: float, processor: float, turns: int) -> None:
    looks = 0

    def clocks() -> tuple[float, float]:
        nonlocal looks
        looks += 1
        return wall * looks, processor * looks

    with pytest.raises(TimeoutError):
        await promptly(lambda: looks > 99, 0.102, clocks)
    assert looks == turns + 1
