from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from handler.plugins.calling import AT_ONCE, PATIENCE_SECONDS
from handler.plugins.protocol import SECONDS
from handler.plugins.turns import MAX_TIMED_OUT, NoTurn, Turns
from tests.unit.controller import virtualtime


class World:
    def __init__(self, number: int) -> None:
        self.turns = Turns(number)
        self.under_way: list[str] = []
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    async def call(self, name: str) -> None:
        async with self.turns.turn(name.partition("-")[0], None):
            self.begun.append(name)
            self.under_way.append(name)
            await self.ends.setdefault(name, asyncio.Event()).wait()
            self.under_way.remove(name)

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await settled()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@contextmanager
def ended(*tasks: asyncio.Task[None]) -> Iterator[None]:
    try:
        yield
    finally:
        for each in tasks:
            each.cancel()


async def test_single_namespace_never_takes_the_last_turn() -> None:
    world = World(4)
    async with asyncio.TaskGroup() as group:
        with ended(*(group.create_task(world.call(f"greedy-{each}")) for each in range(8))):
            await settled()
            assert world.under_way == ["greedy-0", "greedy-1", "greedy-2"]
            await world.end("greedy-0")
            assert world.under_way == ["greedy-1", "greedy-2", "greedy-3"]
            other = group.create_task(world.call("other-0"))
            await settled()
            assert world.under_way[-1] == "other-0"
            await world.end("other-0")
            await other
            assert len(world.under_way) == 3


async def test_next_turn_goes_to_the_namespace_waiting_longest() -> None:
    world = World(2)
    async with asyncio.TaskGroup() as group:
        names = ["a-0", "b-0", "a-1", "a-2", "a-3", "b-1", "c-0"]
        tasks = []
        for each in names:
            tasks.append(group.create_task(world.call(each)))
            await settled()
        with ended(*tasks):
            assert world.begun == ["a-0", "b-0"]
            for each in ("a-0", "b-0", "a-1", "b-1", "c-0"):
                await world.end(each)
            assert world.begun == ["a-0", "b-0", "a-1", "b-1", "c-0", "a-2"]


async def test_timed_out_waits_cost_no_turn() -> None:
    turns = Turns(2)
    async with turns.turn("a", None):
        with pytest.raises(TimeoutError):
            async with turns.turn("a", 0.0):
                pytest.fail("a has its share")
    for namespace in ("a", "b") * 2:
        async with turns.turn(namespace, 0.0):
            pass


async def test_turn_given_to_a_cancelled_wait_goes_to_the_next() -> None:
    world = World(1)
    async with asyncio.TaskGroup() as group:
        async with world.turns.turn("a", None):
            second, third = (group.create_task(world.call(each)) for each in ("a-1", "b-0"))
            await settled()
        second.cancel()  # it got the place, and has not run since
        with ended(second, third):
            await settled()
            assert world.under_way == ["b-0"]
    await there_is_one(world.turns)


async def test_cancelled_wait_is_skipped_when_a_turn_is_free() -> None:
    world = World(1)
    async with asyncio.TaskGroup() as group:
        async with world.turns.turn("a", None):
            second, third = (group.create_task(world.call(each)) for each in ("a-1", "b-0"))
            await settled()
            second.cancel()  # it got the place, and has not run since
        with ended(second, third):
            await settled()
            assert world.under_way == ["b-0"]
    await there_is_one(world.turns)


async def there_is_one(turns: Turns) -> None:
    async with turns.turn("a", 0.0):
        with pytest.raises(TimeoutError):
            async with turns.turn("b", 0.0):
                pytest.fail("there is one turn")


async def test_a_single_turn_is_everybodys() -> None:
    turns = Turns(1)
    for _ in range(2):
        async with turns.turn("a", 0.0):
            pass


async def hang(turns: Turns, namespace: str, began: asyncio.Event | None = None) -> None:
    with contextlib.suppress(TimeoutError):
        async with turns.turn(namespace, PATIENCE_SECONDS), asyncio.timeout(SECONDS):
            if began is not None:
                began.set()
            await asyncio.Event().wait()


async def without_end(turns: Turns, namespace: str) -> None:
    while True:
        await hang(turns, namespace)


@pytest.mark.parametrize(("namespaces", "disks"), [(1, 24), (2, 6), (3, 6), (4, 6), (5, 2), (6, 4), (12, 6)])
def test_namespaces_with_hanging_calls_do_not_block_others(namespaces: int, disks: int) -> None:
    """They may share one storage server. No limiter can predict a namespace's first call."""

    async def play() -> list[float]:
        turns, loop, waited = Turns(AT_ONCE), asyncio.get_running_loop(), []
        async with asyncio.TaskGroup() as group:
            names = [f"hostile{each}" for each in range(namespaces)] * disks
            with ended(*(group.create_task(without_end(turns, each)) for each in names)):
                await asyncio.sleep(SECONDS / 3)
                for _ in range(8):
                    began = loop.time()
                    async with turns.turn("victim", PATIENCE_SECONDS):
                        waited.append(loop.time() - began)
                    await asyncio.sleep(SECONDS / 6)
        return waited

    first, *further = virtualtime.run(play())
    assert first < PATIENCE_SECONDS
    assert sum(further) < 2 * SECONDS


def test_namespace_without_an_answer_is_limited_to_one_turn() -> None:
    async def play() -> None:
        turns = Turns(4)
        for end in ("timeout", "cancelled"):
            if end == "timeout":
                await hang(turns, "a")
            else:
                began = asyncio.Event()
                async with asyncio.TaskGroup() as group:
                    cancelled = group.create_task(hang(turns, "a", began))
                    await began.wait()
                    cancelled.cancel()
            with contextlib.suppress(ValueError):
                async with turns.turn("a", 0.0):
                    with pytest.raises(NoTurn):
                        async with turns.turn("a", 0.0):
                            pytest.fail("a has one turn")
                    raise ValueError("an answer that says what is wrong is one")
            async with turns.turn("a", 0.0), turns.turn("a", 0.0), turns.turn("a", 0.0):
                pass

    virtualtime.run(play())


def test_unanswered_namespaces_leave_a_turn_for_others() -> None:
    async def play() -> list[str]:
        turns, begun = Turns(4), []
        for each in "abcd":
            await hang(turns, each)

        async def call(namespace: str) -> None:
            async with turns.turn(namespace, None):
                begun.append(namespace)
                await asyncio.sleep(1)

        async with asyncio.TaskGroup() as group:
            for each in "abcde":
                group.create_task(call(each))
            await settled()
            assert begun == ["a", "b", "c", "e"]
        return begun

    assert virtualtime.run(play()) == ["a", "b", "c", "e", "d"]


def test_a_single_turn_is_also_theirs_who_had_no_answer() -> None:
    async def play() -> None:
        turns = Turns(1)
        await hang(turns, "a")
        async with turns.turn("a", 0.0):
            pass

    virtualtime.run(play())


def test_no_more_namespaces_are_remembered_than_there_may_be() -> None:
    async def play() -> None:
        turns = Turns(4)
        for each in range(MAX_TIMED_OUT + 1):
            await hang(turns, str(each))
        async with turns.turn("0", 0.0), turns.turn("0", 0.0):
            pass
        async with turns.turn("1", 0.0):
            with pytest.raises(NoTurn):
                async with turns.turn("1", 0.0):
                    pytest.fail("it is remembered")

    virtualtime.run(play())
