import asyncio
import json

import pytest

from apiserver.registry.cacher import indexing
from apiserver.registry.cacher.audiences import Trigger
from apiserver.registry.cacher.indexing import Indices
from apiserver.registry.cacher.items import Item, SortedItems


def item(key: str, **labels: str) -> Item:
    return Item(key, 1, None, json.dumps({"metadata": {"labels": labels}}).encode())


def by(label: str, value: str) -> Trigger:
    return Trigger(f"label {label}", value, lambda each: each.labels.get(label, ""))


class World:
    def __init__(self, count: int) -> None:
        self.items = SortedItems(item(f"ns{number % 2}/{number:03}", n=str(number % 20)) for number in range(count))
        self.indices = Indices()

    def put(self, changed: Item) -> None:
        self.items.put(changed)
        self.indices.changed(changed.key, changed)

    def remove(self, key: str) -> None:
        self.items.remove(key)
        self.indices.changed(key, None)

    def found(self, trigger: Trigger, prefix: str = "", start: str = "") -> list[str] | None:
        found = self.indices.find(trigger, prefix, start, self.items)
        return None if found is None else [each.key for each in found]


async def test_objects_with_a_label_are_found_in_order() -> None:
    world = World(100)
    assert world.found(by("n", "3")) is None
    await world.indices.prepare(by("n", "3"), world.items)
    assert world.found(by("n", "3")) == ["ns1/003", "ns1/023", "ns1/043", "ns1/063", "ns1/083"]
    assert world.found(by("n", "4"), "ns0/", "ns0/04") == ["ns0/044", "ns0/064", "ns0/084"]
    assert world.found(by("n", "x")) == []
    world.put(item("ns1/023", n="4"))
    world.put(item("ns1/043"))
    world.put(item("ns1/200", n="3"))
    world.remove("ns1/063")
    assert world.found(by("n", "3")) == ["ns1/003", "ns1/083", "ns1/200"]
    assert world.found(by("n", "4"), "ns1/") == ["ns1/023"]


async def test_changes_while_an_index_is_made_are_in_it() -> None:
    world = World(300)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(world.indices.prepare(by("n", "3"), world.items))
        await asyncio.sleep(0)
        other = tasks.create_task(world.indices.prepare(by("n", "3"), world.items))
        world.put(item("ns1/003", n="4"))
        world.put(item("ns1/283", n="4"))
        world.remove("ns1/263")
        world.put(item("ns1/299", n="3"))
        assert world.found(by("n", "3")) is None
        assert not other.done()
    found = world.found(by("n", "3"))
    assert found is not None
    assert found == [f"ns1/{number:03}" for number in range(23, 260, 20)] + ["ns1/299"]


async def test_a_value_that_many_have_is_found_in_order() -> None:
    world = World(60)
    for number in range(0, 60, 2):
        world.put(item(f"ns0/{number:03}", n="common"))
    await world.indices.prepare(by("n", "common"), world.items)
    assert world.found(by("n", "common")) == [f"ns0/{number:03}" for number in range(0, 60, 2)]
    assert world.found(by("n", "common"), "ns1/") == []
    assert world.found(by("n", "3")) == ["ns1/003", "ns1/023", "ns1/043"]


async def test_only_so_many_labels_are_indexed() -> None:
    world = World(50)
    for number in range(indexing.FIELDS + 2):
        await world.indices.prepare(by(f"label{number}", "x"), world.items)
    assert len(world.indices) == indexing.FIELDS
    assert world.found(by("label0", "x")) is None
    assert world.found(by("label5", "x")) == []


async def test_abandoned_index_keeps_no_request_waiting() -> None:
    world = World(300)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(world.indices.prepare(by("n", "3"), world.items))
        await asyncio.sleep(0)
        tasks.create_task(world.indices.prepare(by("n", "3"), world.items))
        await asyncio.sleep(0)
        first.cancel()
    assert world.found(by("n", "3")) is None


@pytest.mark.parametrize("prepared", [False, True])
async def test_forgotten_indices_are_rebuilt(prepared: bool) -> None:
    world = World(50)
    if prepared:
        await world.indices.prepare(by("n", "3"), world.items)
    world.indices.clear()
    assert world.found(by("n", "3")) is None
    await world.indices.prepare(by("n", "3"), world.items)
    assert world.found(by("n", "3")) == ["ns1/003", "ns1/023", "ns1/043"]
