from __future__ import annotations

import asyncio

import pytest

from tests.own_time import own, promptly, within


def test_time_that_others_had_the_processor_is_not_counted_and_all_other_is() -> None:
    assert own(wall=0.006, processor=0.0) == 0.006, "it waited"
    assert own(wall=3.0, processor=3.0) == 3.0, "it was held up by its own work"
    assert own(wall=3.0, processor=0.5) == pytest.approx(0.51)


async def test_what_never_comes_is_late() -> None:
    with pytest.raises(TimeoutError, match="own time"):
        await promptly(lambda: False, 0.02)
    await promptly(lambda: True, 0.0)


async def test_work_gives_its_result_or_its_error_and_is_ended_when_it_is_late() -> None:
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


async def test_work_does_not_go_on_when_the_test_that_waits_for_it_is_cancelled() -> None:
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
async def test_each_turn_takes_as_much_of_the_time_as_was_the_processs_own(wall: float, processor: float, turns: int) -> None:
    looks = 0

    def clocks() -> tuple[float, float]:
        nonlocal looks
        looks += 1
        return wall * looks, processor * looks

    with pytest.raises(TimeoutError):
        await promptly(lambda: looks > 99, 0.102, clocks)
    assert looks == turns + 1
