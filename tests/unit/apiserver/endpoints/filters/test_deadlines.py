from __future__ import annotations

import asyncio

import pytest

from apiserver.endpoints.filters.deadlines import Deadlines


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_only_overdue_requests_are_cancelled() -> None:
    clock = Clock()
    deadlines = Deadlines(60, now=clock)
    begun = asyncio.Event()

    async def work(seconds: float) -> str:
        deadline = deadlines.begin()
        begun.set()
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            assert deadline.expired
            assert not deadline.task.uncancel()
            return "late"
        finally:
            deadlines.end(deadline)
        return "done"

    async with asyncio.TaskGroup() as tasks:
        old = tasks.create_task(work(30))
        await begun.wait()
        clock.now = 30
        young = tasks.create_task(work(0.02))
        await asyncio.sleep(0)
        clock.now = 60.1
        deadlines.look()
    assert (old.result(), young.result()) == ("late", "done")


async def test_late_cancellation_does_not_reach_the_next_request() -> None:
    clock = Clock()
    deadlines = Deadlines(60, now=clock)
    deadline = deadlines.begin()
    clock.now = 61
    deadlines.look()
    deadlines.end(deadline)
    assert deadline.expired
    await deadline.absorb()
    await asyncio.sleep(0)  # would raise


async def test_foreign_cancellation_is_kept() -> None:
    deadlines = Deadlines(60)

    async def work() -> None:
        deadline = deadlines.begin()
        deadline.expired = True
        deadline.task.cancel()
        deadline.task.cancel()
        await deadline.absorb()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work())
    assert task.cancelled()


async def test_the_looking_stops_with_its_task() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await Deadlines(1).run()
