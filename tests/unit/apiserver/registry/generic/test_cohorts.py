"""Writes that come in one turn of the event loop go through the stages of planning together; nobody waits for whom is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import pytest

from apiserver.apis.meta.objects import Object
from apiserver.registry.cacher.items import Item
from apiserver.registry.cacher.watchcache import WatchCache
from apiserver.registry.generic import codec
from apiserver.registry.generic.admission import Attributes
from apiserver.registry.generic.cohorts import Cohorts
from apiserver.registry.generic.options import WriteOptions
from apiserver.registry.generic.store import Store, Stored
from storage.memory import MemoryStorage
from tests.twin import flunders

STAGES = ("a", "b", "c")
T = TypeVar("T")


class Log:
    """Writes that note how far they came."""

    def __init__(self) -> None:
        self.cohorts = Cohorts()
        self.lines: list[str] = []

    async def write(self, name: str) -> int:
        cohort = await self.cohorts.join()
        for number, stage in enumerate(STAGES):
            if number:
                await cohort.stage()
            self.lines.append(f"{name}{stage}")
        return cohort.size


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def together(*writes: Awaitable[T]) -> list[T]:
    """Await all, begun in one turn."""

    async def one(write: Awaitable[T]) -> T:
        return await write

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(write)) for write in writes]
    return [each.result() for each in running]


async def test_those_of_one_turn_go_through_each_stage_together_in_their_order() -> None:
    log = Log()
    assert await together(*(log.write(name) for name in "123")) == [3, 3, 3]
    assert log.lines == ["1a", "2a", "3a", "1b", "2b", "3b", "1c", "2c", "3c"]


async def test_who_comes_alone_waits_for_the_end_of_the_turn_only() -> None:
    log = Log()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(log.write("1"))
        await turns(2)
        assert log.lines == ["1a", "1b", "1c"]


async def test_those_of_a_later_turn_are_another_cohort() -> None:
    log = Log()
    async with asyncio.TaskGroup() as tasks:
        early = [tasks.create_task(log.write(name)) for name in "12"]
        await turns(2)
        late = [tasks.create_task(log.write(name)) for name in "345"]
    assert [each.result() for each in early + late] == [2, 2, 3, 3, 3]


async def test_who_is_cancelled_keeps_nobody_waiting() -> None:
    log = Log()
    async with asyncio.TaskGroup() as tasks:
        first, second, third = (tasks.create_task(log.write(name)) for name in "123")
        await turns(1)
        first.cancel()  # before the cohort goes on
        await turns(1)
        second.cancel()  # between two stages
    assert first.cancelled()
    assert second.cancelled()
    assert third.result() == 3
    assert log.lines == ["2a", "3a", "3b", "3c"]
    assert await log.write("4") == 1


async def test_when_all_of_a_cohort_are_gone_the_next_one_is_not_counted_among_them() -> None:
    log = Log()
    async with asyncio.TaskGroup() as tasks:
        gone = [tasks.create_task(log.write(name)) for name in "12"]
        await turns(1)
        for each in gone:
            each.cancel()
        await turns(1)
    assert await log.write("3") == 1


class Nobody:
    """No admission, which notes when it was thought of."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def handles(self, operation: str, *_: object) -> bool:
        self.order.append(operation)
        return False

    async def mutate(self, attributes: Attributes) -> None:
        raise AssertionError(attributes)

    async def validate(self, attributes: Attributes) -> None:
        raise AssertionError(attributes)


class Room:
    """A store over memory."""

    def __init__(self) -> None:
        strategy = flunders.strategies("wardle.example.com")[0]
        self.storage = MemoryStorage()
        self.cache = WatchCache(self.storage, codec.collection("/registry", strategy.resource), partial(codec.decode, strategy))
        self.nobody = Nobody()
        self.store = Store(
            self.storage, self.cache, strategy, root="/registry", admission=self.nobody, now=lambda: datetime.now(UTC)
        )  # fmt: skip

    async def create(self, name: str) -> Item:
        return await self.store.create("n", {"metadata": {"name": name}}, WriteOptions())

    async def label(self, name: str, label: str) -> Item:
        def change(stored: Stored) -> Object:
            self.nobody.order.append(label)
            obj = stored()
            obj["metadata"]["labels"] = {**obj["metadata"].get("labels", {}), label: "yes"}
            return obj

        return await self.store.update("n", name, change, WriteOptions())

    async def labels(self, name: str) -> set[str]:
        """Return the labels that are stored."""
        entry = await self.storage.get(self.store.key("n", name))
        assert entry is not None
        return set(self.store.decode(entry).labels)


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    made = Room()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.cache.run())
        await made.cache.synced.wait()
        yield made
        running.cancel()


@pytest.mark.parametrize("names", [["a", "b", "c"], ["a", "a", "a"]], ids=["of several objects", "of one object"])
async def test_writes_that_are_planned_together_lose_nothing(room: Room, names: list[str]) -> None:
    await together(*(room.create(name) for name in sorted(set(names))))
    room.nobody.order.clear()
    await together(*(room.label(name, str(number)) for number, name in enumerate(names)))
    assert room.nobody.order[:6] == ["0", "1", "2", "UPDATE", "UPDATE", "UPDATE"]
    for number, name in enumerate(names):
        assert str(number) in await room.labels(name)


@pytest.mark.parametrize("number", range(12))
async def test_a_write_that_is_cancelled_at_any_turn_is_done_or_not_and_hinders_nobody(room: Room, number: int) -> None:
    await together(room.create("a"), room.create("b"))
    async with asyncio.TaskGroup() as tasks:
        cancelled = tasks.create_task(room.label("a", "x"))
        other = tasks.create_task(room.label("b", "x"))
        await turns(number)
        cancelled.cancel()
    stored = await room.labels("a")
    assert stored == {"x"} or (cancelled.cancelled() and not stored)
    assert (await room.labels("b"), set(other.result().labels)) == ({"x"}, {"x"})
    assert set((await room.label("a", "y")).labels) == await room.labels("a") >= {"y"}
