from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller.runtime.workqueue import Closed, WorkQueue
from tests.unit.controller.virtualtime import VirtualTimeLoop, run

ITEMS = st.sampled_from("abcd")


class Queue(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.queue: WorkQueue[str] = WorkQueue()
        self.order: list[str] = []
        self.working: set[str] = set()
        self.again: list[str] = []
        self.planned: dict[str, float] = {}
        self.delays = 0

    def teardown(self) -> None:
        self.loop.close()

    async def _call(self, name: str, *args: object) -> None:
        getattr(self.queue, name)(*args)

    def _add(self, item: str) -> None:
        if item in self.working:
            if item not in self.again:
                self.again.append(item)
        elif item not in self.order:
            self.order.append(item)

    @rule(item=ITEMS)
    def add(self, item: str) -> None:
        self.queue.add(item)
        self._add(item)

    @rule(item=ITEMS, seconds=st.integers(0, 5))
    def add_after(self, item: str, seconds: int) -> None:
        # The order of timers with equal due times is unspecified.
        self.delays += 1
        delay = seconds + self.delays / 1e6 if seconds else 0
        self.loop.run_until_complete(self._call("add_after", item, delay))
        if seconds == 0:
            self._add(item)
        else:
            due = self.loop.time() + delay
            self.planned[item] = min(due, self.planned.get(item, due))

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds: int) -> None:
        until = self.loop.time() + seconds
        self.loop.run_until_complete(asyncio.sleep(seconds + 0.5))
        for item in sorted([each for each in self.planned if self.planned[each] <= until + 0.5], key=lambda each: self.planned[each]):
            del self.planned[item]
            self._add(item)

    @precondition(lambda self: self.order)
    @rule()
    def get(self) -> None:
        item = self.loop.run_until_complete(self.queue.get())
        assert item == self.order.pop(0)
        assert item not in self.working
        self.working.add(item)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(sorted(self.working)))
        self.queue.done(item)
        self.working.remove(item)
        if item in self.again:
            self.again.remove(item)
            self._add(item)

    @invariant()
    def as_many_can_be_taken_as_wait(self) -> None:
        assert len(self.queue) == len(self.order)


TestQueue = Queue.TestCase


def test_failures_double_the_pause_until_forgotten() -> None:
    async def scenario() -> list[float]:
        loop, queue = asyncio.get_running_loop(), WorkQueue[str](first_retry_seconds=1, longest_retry_seconds=4)
        pauses = []
        for attempt in range(5):
            if attempt == 4:
                queue.forget("a")
            began = loop.time()
            queue.add_rate_limited("a")
            queue.done(await queue.get())
            pauses.append(loop.time() - began)
        return pauses

    assert run(scenario()) == [1, 2, 4, 4, 1]


def test_closing_wakes_every_worker() -> None:
    async def scenario() -> int:
        queue, ended = WorkQueue[str](), 0

        async def work() -> None:
            nonlocal ended
            with pytest.raises(Closed):
                await queue.get()
            ended += 1

        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(work())
            await asyncio.sleep(0)
            queue.close()
        return ended

    assert run(scenario()) == 3


def test_an_item_meant_for_a_cancelled_worker_goes_to_another() -> None:
    async def scenario() -> str:
        queue: WorkQueue[str] = WorkQueue()
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(queue.get())
            second = tasks.create_task(queue.get())
            await asyncio.sleep(0)
            queue.add("a")
            first.cancel()
            with suppress(asyncio.CancelledError):
                await first
            return await second

    assert run(scenario()) == "a"
