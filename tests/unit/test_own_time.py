"""What of a turn's time is a process's own."""

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
