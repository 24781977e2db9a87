from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import pytest

from apiserver.apis.meta.errors import AlreadyExists, Forbidden, NotFound
from apiserver.apis.meta.objects import Object, labels_of
from apiserver.apis.meta.resources import Resource
from apiserver.registry.cacher.watchcache import WatchCache
from apiserver.registry.generic import codec
from apiserver.registry.generic.admission import Admission, AdmitAll, Attributes, Operation
from apiserver.registry.generic.options import DeleteOptions, WriteOptions
from apiserver.registry.generic.store import Store, Stored
from storage.memory import MemoryStorage
from tests.reference_server import flunders

DRY = WriteOptions(dry_run=True)


class World:
    """Two stores over one storage. The cache of ``behind`` is stale; ``other`` has none."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.cache, self.behind = self.made_with(AdmitAll())
        _, self.other = self.made_with(AdmitAll())

    def made_with(self, admission: Admission) -> tuple[WatchCache, Store]:
        strategy = flunders.strategies("wardle.example.com")[0]
        cache = WatchCache(self.storage, codec.collection("/registry", strategy.resource), partial(codec.decode, strategy))
        return cache, Store(self.storage, cache, strategy, root="/registry", admission=admission, now=lambda: datetime.now(UTC))

    async def stored(self) -> dict[str, str]:
        entry = await self.storage.get(self.other.objects.key("n", "a"))
        assert entry is not None
        return dict(self.other.objects.decode(entry).labels)


class Labelling:
    """Adds a label and may refuse; ``seen`` has the labels it saw."""

    def __init__(self, label: str, refuses: Callable[[dict[str, str]], bool] = lambda _: False) -> None:
        self.label = label
        self.refuses = refuses
        self.seen: list[set[str]] = []

    def __call__(self, stored: Stored) -> Object:
        obj = stored()
        labels = dict(labels_of(obj))
        self.seen.append(set(labels))
        if self.refuses(labels):
            raise Forbidden("no")
        obj["metadata"]["labels"] = {**labels, self.label: "yes"}
        return obj


@pytest.fixture
async def world() -> World:
    made = World()
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(made.cache.run())
        await made.cache.synced.wait()
        await made.behind.create("n", {"metadata": {"name": "a"}}, WriteOptions())
        await made.cache.wait_fresh()
        following.cancel()
    return made


async def test_a_commit_that_came_too_late_is_planned_again(world: World) -> None:
    await world.other.update("n", "a", Labelling("theirs"), WriteOptions())
    mine = Labelling("mine")
    item = await world.behind.update("n", "a", mine, WriteOptions())
    assert mine.seen == [set(), {"theirs"}]
    assert set(labels_of(item.object)) == {"theirs", "mine"} == set(await world.stored())


@pytest.mark.parametrize(("options", "seen"), [(WriteOptions(), [set(), {"theirs"}]), (DRY, [{"theirs"}])], ids=["in earnest", "dry run"])
async def test_a_refusal_counts_only_of_what_is_stored(world: World, options: WriteOptions, seen: list[set[str]]) -> None:
    await world.other.update("n", "a", Labelling("theirs"), WriteOptions())
    mine = Labelling("mine", refuses=lambda labels: "theirs" not in labels)
    await world.behind.update("n", "a", mine, options)
    assert mine.seen == seen


class Interfered(AdmitAll):
    def __init__(self, other: Store) -> None:
        self.other = other
        self.asked = 0

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        del operation, resource, subresource
        return True

    async def validate(self, attributes: Attributes) -> None:
        del attributes
        self.asked += 1
        if self.asked <= 10:
            await self.other.update("n", "a", Labelling(f"theirs-{self.asked}"), WriteOptions())


async def test_dry_run_is_planned_once_despite_other_writes(world: World) -> None:
    admission, mine = Interfered(world.other), Labelling("mine")
    _, mine_and_others = world.made_with(admission)
    item = await mine_and_others.update("n", "a", mine, DRY)
    assert (mine.seen, admission.asked, set(labels_of(item.object))) == ([set()], 1, {"mine"})
    await mine_and_others.update("n", "a", mine, WriteOptions())
    assert (admission.asked, len(await world.stored())) == (11, 11), "in earnest it goes on until nobody writes: ten of theirs, and mine"


async def test_refused_update_is_not_retried_on_the_same_state(world: World) -> None:
    mine = Labelling("mine", refuses=lambda _: True)
    with pytest.raises(Forbidden):
        await world.behind.update("n", "a", mine, WriteOptions())
    assert mine.seen == [set()]


async def test_that_nothing_changes_counts_only_of_what_is_stored(world: World) -> None:
    await world.other.update("n", "a", Labelling("theirs"), WriteOptions())
    seen: list[set[str]] = []

    def nothing(stored: Stored) -> Object:
        obj = stored()
        seen.append(set(labels_of(obj)))
        return obj

    before = await world.storage.revision()
    item = await world.behind.update("n", "a", nothing, WriteOptions())
    assert (seen, set(labels_of(item.object))) == ([set(), {"theirs"}], {"theirs"})
    assert await world.storage.revision() == before


async def test_a_dry_run_is_of_what_is_stored_and_stores_nothing(world: World) -> None:
    await world.other.update("n", "a", Labelling("theirs"), WriteOptions())
    before = await world.storage.revision()
    item = await world.behind.update("n", "a", Labelling("mine"), DRY)
    assert set(labels_of(item.object)) == {"theirs", "mine"}
    assert (set(await world.stored()), await world.storage.revision()) == ({"theirs"}, before)


async def test_a_dry_run_of_what_is_gone_or_there_already_says_so(world: World) -> None:
    with pytest.raises(AlreadyExists):
        await world.behind.create("n", {"metadata": {"name": "a"}}, DRY)
    item, gone = await world.behind.delete("n", "a", DeleteOptions(dry_run=True))
    assert (gone, item.object["metadata"]["name"]) == (True, "a")
    await world.other.delete("n", "a", DeleteOptions())
    for attempt in (world.behind.delete("n", "a", DeleteOptions(dry_run=True)), world.behind.update("n", "a", Labelling("mine"), DRY)):
        with pytest.raises(NotFound):
            await attempt
