import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.registry.cacher import freshness
from apiserver.registry.cacher.history import Replay
from apiserver.registry.cacher.watchcache import Event, EventType, Item, Times, Undecodable, Watch, WatchCache
from apiserver.registry.cacher.window import Limits
from storage.port import Condition, Delete, Entry, Page, Put
from tests.fakes.storage import UnreliableStorage
from tests.own_time import promptly, within


def decode(entry: Entry) -> Item:
    value = json.loads(entry.value)
    value["metadata"] = {"resourceVersion": str(entry.mod_revision)}
    return Item(entry.key, entry.mod_revision, value, json.dumps(value).encode())


@dataclass
class World:
    storage: UnreliableStorage
    cache: WatchCache
    reports: list[Undecodable]

    async def put(self, key: str, **fields: object) -> int:
        return await self.storage.commit([], [Put(key, json.dumps(fields).encode())])

    async def delete(self, key: str) -> int:
        return await self.storage.commit([], [Delete(key)])


@asynccontextmanager
async def running(cache: WatchCache) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(cache.run())
        try:
            yield
        finally:
            task.cancel()


@pytest.fixture
def make_world() -> Callable[..., World]:
    def make(storage: UnreliableStorage | None = None, **options: Any) -> World:
        storage, reports = storage or UnreliableStorage(), list[Undecodable]()
        cache = WatchCache(storage, "vm/", decode, on_undecodable=reports.append, **options)
        return World(storage, cache, reports)

    return make


@asynccontextmanager
async def synced(made: World) -> AsyncIterator[World]:
    async with running(made.cache):
        async with asyncio.timeout(30):
            await made.cache.synced.wait()
        yield made


@pytest.fixture
async def world(make_world: Callable[..., World]) -> AsyncIterator[World]:
    async with synced(make_world(timeout_seconds=20.0)) as made:
        yield made


@pytest.fixture
async def impatient(make_world: Callable[..., World]) -> AsyncIterator[World]:
    async with synced(make_world(timeout_seconds=0.3)) as made:
        yield made


async def read(watch: Watch | Replay, count: int) -> list[Event]:
    async with asyncio.timeout(30):
        return [await anext(watch) for _ in range(count)]


def told(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.type.value, event.item.key if event.item else "") for event in events]


# 1: linearizable


async def test_1_reads_after_waiting_show_every_acknowledged_write(world: World) -> None:
    for number in range(30):
        revision = await world.put("vm/a", number=number)
        assert await world.cache.wait_fresh() >= revision
        item = world.cache.get("vm/a")
        assert item is not None
        assert (item.object["number"], item.revision) == (number, revision)
        assert json.loads(item.data)["metadata"]["resourceVersion"] == str(revision)


async def test_1_writes_elsewhere_do_not_keep_a_read_waiting(world: World) -> None:
    await world.put("vm/a")
    revision = await world.put("elsewhere/b")
    assert await within(0.2, world.cache.wait_fresh()) >= revision
    assert world.storage.calls["request_progress"] >= 1


async def test_1_read_does_not_wait_for_an_earlier_requests_pause(world: World) -> None:
    async def read_often() -> None:
        for _ in range(20):
            await world.put("elsewhere/b")
            await world.cache.wait_fresh()

    await within(20 * freshness.ASK_AGAIN_SECONDS / 2, read_often())


async def test_1_concurrent_reads_share_one_question(world: World) -> None:
    before = world.storage.calls.get("revision", 0)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(200):
            tasks.create_task(world.cache.wait_fresh())
    assert world.storage.calls["revision"] - before <= 2


async def test_1_read_does_not_share_an_earlier_revision_request(world: World) -> None:
    world.storage.delay = 0.05
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(world.cache.wait_fresh())
        await asyncio.sleep(0.06)  # the first request is in progress or done
        world.storage.delay = 0.0
        revision = await world.put("vm/a")
        assert await world.cache.wait_fresh() >= revision
        assert world.cache.get("vm/a") is not None


async def test_1_a_cancelled_reader_does_not_disturb_the_others(world: World) -> None:
    world.storage.delay = 0.02
    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(world.cache.wait_fresh()) for _ in range(5)]
        await asyncio.sleep(0.005)
        readers[0].cancel()
        readers[3].cancel()
    assert [reader.cancelled() for reader in readers] == [True, False, False, True, False]


async def test_1_unreached_revision_times_out_with_its_cause(impatient: World) -> None:
    with pytest.raises(errors.Timeout) as caught:
        await impatient.cache.wait_fresh(10_000)
    assert [cause.reason for cause in caught.value.details.causes] == ["ResourceVersionTooLarge"]
    assert "Too large resource version: 10000, current: 1" in caught.value.message


async def test_1_given_revision_is_awaited_without_asking_storage(world: World) -> None:
    revision = await world.put("vm/a")
    before = world.storage.calls.get("revision", 0)
    assert await world.cache.wait_fresh(revision) >= revision
    assert world.storage.calls.get("revision", 0) == before


async def test_1_each_waits_for_its_own_revision(world: World) -> None:
    now = world.cache.revision
    reached: list[int] = []

    async def wait(revision: int) -> None:
        assert await world.cache.wait_fresh(revision) >= revision
        reached.append(revision)

    async with asyncio.TaskGroup() as tasks:
        for distance in (3, 1, 2, 5, 4):
            tasks.create_task(wait(now + distance))
        for distance in range(1, 6):
            await asyncio.sleep(0.02)
            assert reached == list(range(now + 1, now + distance))
            await world.put("vm/a")


async def test_1_revision_zero_reads_the_cache_once_it_is_filled(make_world: Callable[..., World]) -> None:
    made = make_world(timeout_seconds=0.5)
    await made.put("vm/a")
    async with running(made.cache):
        with pytest.raises(errors.TooManyRequests, match=r"storage is \(re\)initializing") as caught:
            await made.cache.wait_fresh(0)
        assert caught.value.details.retry_after_seconds == 1
        await made.cache.wait_fresh(1)
        assert made.cache.get("vm/a") is not None
        assert await made.cache.wait_fresh(0) == made.cache.revision


# 2: one picture


async def test_2_list_is_in_key_order_with_its_snapshots_revision(world: World) -> None:
    for key in ("vm/b/2", "vm/a/1", "vm/b/1", "vm/bc/1", "other/x"):
        await world.put(key)
    last = await world.delete("vm/b/2")
    await world.put("vm/b/3")
    await world.cache.wait_fresh()
    snapshot = world.cache.list()
    assert [item.key for item in snapshot.items] == ["vm/a/1", "vm/b/1", "vm/b/3", "vm/bc/1"]
    assert snapshot.revision == last + 1
    assert [item.key for item in world.cache.list("vm/b/").items] == ["vm/b/1", "vm/b/3"]
    page = world.cache.list(start="vm/a/1\0", limit=2)
    assert ([item.key for item in page.items], page.remaining) == (["vm/b/1", "vm/b/3"], 1)


async def test_2_a_list_that_was_taken_does_not_change(world: World) -> None:
    await world.put("vm/a", number=1)
    await world.cache.wait_fresh()
    snapshot = world.cache.list()
    await world.put("vm/a", number=2)
    await world.put("vm/b")
    await world.cache.wait_fresh()
    assert [item.object["number"] for item in snapshot.items] == [1]


async def test_2_more_entries_than_a_page_are_listed_at_one_revision(make_world: Callable[..., World]) -> None:
    made = make_world()
    for part in range(13):
        await made.storage.commit([], [Put(f"vm/{part:02}/{number:03}", b"{}") for number in range(100)])
    async with running(made.cache):
        await made.cache.wait_fresh()
        assert len(made.cache.list().items) == 1300
        assert made.storage.calls["range"] == 3


class Meddled(UnreliableStorage):
    def __init__(self) -> None:
        super().__init__()
        self.pages: list[Page] = []

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        page = await super().range(prefix, start=start, limit=limit, revision=revision)
        if not self.pages:
            await self.commit([], [Put("vm/00/000", b'{"n": 1}')])
            await self.commit([], [Delete("vm/00/001")])
            await self.commit([], [Put("vm/00/new", b"{}")])
            await self.commit([], [Delete("vm/05/099")])
        self.pages.append(page)
        return page


async def test_2_writes_between_pages_of_the_first_list_are_seen(make_world: Callable[..., World]) -> None:
    storage = Meddled()
    made = make_world(storage)
    for part in range(6):
        await storage.commit([], [Put(f"vm/{part:02}/{number:03}", b"{}") for number in range(100)])
    begun = await storage.revision()
    async with running(made.cache):
        await made.cache.wait_fresh()
        items = {item.key: item.object.get("n") for item in made.cache.list().items}
        assert [page.revision for page in storage.pages] == [begun, begun]
        assert (items["vm/00/000"], "vm/00/001" in items, "vm/00/new" in items, "vm/05/099" in items) == (1, False, True, False)
        assert len(items) == 599


# 3: watches


async def test_3_a_watch_tells_additions_changes_and_ends(world: World) -> None:
    async with world.cache.watch(after=world.cache.revision) as watch:
        added, changed, ended = await world.put("vm/a", n=1), await world.put("vm/a", n=2), await world.delete("vm/a")
        events = await read(watch, 3)
    assert told(events) == [("ADDED", "vm/a"), ("MODIFIED", "vm/a"), ("DELETED", "vm/a")]
    assert [event.revision for event in events] == [added, changed, ended]
    assert [event.previous and event.previous.object["n"] for event in events] == [None, 1, 2]


async def test_3_deleted_event_has_last_state_and_deletion_revision(world: World) -> None:
    async with world.cache.watch(after=world.cache.revision) as first, world.cache.watch(after=world.cache.revision) as second:
        changed = await world.put("vm/a", n=2)
        ended = await world.delete("vm/a")
        event, other = (await read(first, 2))[1], (await read(second, 2))[1]
    assert event.item is not None
    assert event.previous is not None
    assert (event.item.object["n"], event.item.revision, event.previous.revision) == (2, ended, changed)
    assert json.loads(event.item.data) == {"n": 2, "metadata": {"resourceVersion": str(ended)}}
    assert other.item is event.item


async def test_3_a_watch_begins_at_any_revision_of_the_window(world: World) -> None:
    revisions = [await world.put(f"vm/{number}") for number in range(6)]
    await world.cache.wait_fresh()
    for skip, after in enumerate(revisions[:-1]):
        async with world.cache.watch(after=after) as watch:
            assert [event.revision for event in await read(watch, 5 - skip)] == revisions[skip + 1 :]


async def test_3_starting_or_ending_matches_are_added_or_deleted(world: World) -> None:
    async with world.cache.watch(after=world.cache.revision, predicate=lambda item: bool(item.object.get("on"))) as watch:
        await world.put("vm/a", on=False, n=1)
        await world.put("vm/a", on=True, n=2)
        await world.put("vm/a", on=True, n=3)
        left = await world.put("vm/a", on=False, n=4)
        await world.delete("vm/a")
        await world.put("vm/b", on=True)
        events = await read(watch, 4)
    assert told(events) == [("ADDED", "vm/a"), ("MODIFIED", "vm/a"), ("DELETED", "vm/a"), ("ADDED", "vm/b")]
    gone = events[2].item
    assert gone is not None
    assert (gone.object["n"], gone.revision, gone.object["metadata"]["resourceVersion"]) == (3, left, str(left))


async def test_3_prefix_watch_gets_only_its_events_and_keeps_its_place(make_world: Callable[..., World]) -> None:
    made = make_world(capacity=8)
    async with running(made.cache):
        await made.cache.wait_fresh()
        async with made.cache.watch("vm/quiet/", after=made.cache.revision) as watch, asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(read(watch, 1))
            for number in range(60):
                await made.put("vm/loud/x", n=number)
                await made.cache.wait_fresh()
            await made.put("vm/quiet/a")
            assert told(await reading) == [("ADDED", "vm/quiet/a")]


async def test_3_a_watch_of_the_future_is_silent_until_then(world: World) -> None:
    after = world.cache.revision + 2
    async with world.cache.watch(after=after, bookmark_seconds=0.05) as watch:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.12):
                await anext(watch)
        for number in range(4):
            await world.put("vm/a", n=number)
        found: list[int] = []
        while len(found) < 2:
            found += [event.revision for event in await read(watch, 1) if event.item]
        assert found == [after + 1, after + 2]


async def test_3_a_cancelled_wait_loses_no_event(world: World) -> None:
    async with world.cache.watch(after=world.cache.revision) as watch:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await anext(watch)
        await world.put("vm/a")
        assert told(await read(watch, 1)) == [("ADDED", "vm/a")]


async def test_3_bookmarks_say_how_far_the_watch_is(world: World) -> None:
    async with world.cache.watch(after=world.cache.revision, bookmark_seconds=0.02) as watch:
        revision = await world.put("elsewhere/a")
        await world.cache.wait_fresh()
        (event,) = await read(watch, 1)
        assert (event.type, event.item, event.revision) == (EventType.BOOKMARK, None, revision)
        changed = await world.put("vm/a")
        assert [(event.type.value, event.revision) for event in await read(watch, 2)] == [("ADDED", changed), ("BOOKMARK", changed)]


async def test_3_events_at_hand_can_be_taken_together(world: World) -> None:
    async with world.cache.watch(after=world.cache.revision) as watch:
        assert watch.take() == []
        for number in range(3):
            await world.put(f"vm/{number}")
        await world.cache.wait_fresh()
        assert told(watch.take()) == [("ADDED", "vm/0"), ("ADDED", "vm/1"), ("ADDED", "vm/2")]
        assert watch.take() == []


async def test_3_several_objects_changed_in_one_commit_are_told_each(world: World) -> None:
    async with world.cache.watch(after=world.cache.revision) as watch:
        revision = await world.storage.commit([Condition("vm/a", 0)], [Put("vm/a", b"{}"), Put("claim/a", b"{}"), Put("vm/b", b"{}")])
        events = await read(watch, 2)
    assert [(event.item and event.item.key, event.revision) for event in events] == [("vm/a", revision), ("vm/b", revision)]


async def test_3_watches_end_when_the_cache_stops(make_world: Callable[..., World]) -> None:
    made = make_world()
    async with asyncio.TaskGroup() as tasks:
        running_cache = tasks.create_task(made.cache.run())
        await made.cache.synced.wait()
        async with made.cache.watch(after=made.cache.revision) as watch:
            running_cache.cancel()
            with pytest.raises(StopAsyncIteration):
                await anext(watch)


# 4: honest


async def test_4_watches_from_before_the_list_share_one_replay(make_world: Callable[..., World]) -> None:
    made = make_world(capacity=10)
    revisions = [await made.put("vm/a", n=1), await made.put("vm/b"), await made.put("vm/a", n=2), await made.delete("vm/b")]
    async with running(made.cache):
        await made.cache.wait_fresh()
        async with asyncio.TaskGroup() as tasks:

            async def resume(after: int) -> list[tuple[str, str]]:
                async with made.cache.watch(after=after) as watch:
                    return told(await read(watch, sum(revision > after for revision in (*revisions, 10**9))))

            resumed = [tasks.create_task(resume(after)) for after in revisions]
            await asyncio.sleep(0.01)
            await made.put("vm/c")
        expected = [("ADDED", "vm/b"), ("MODIFIED", "vm/a"), ("DELETED", "vm/b"), ("ADDED", "vm/c")]
        assert [task.result() for task in resumed] == [expected, expected[1:], expected[2:], expected[3:]]
        assert made.cache._history.read_back == 1
        await made.storage.compact(revisions[0])
        with pytest.raises(errors.Expired, match=r"too old resource version: 1 "):
            async with made.cache.watch(after=1):
                pass


@pytest.mark.parametrize("key", ["", "vm/3"])
async def test_4_old_watch_reads_the_storage_until_it_is_live(make_world: Callable[..., World], key: str) -> None:
    made = make_world(capacity=10)
    revisions = {await made.put(f"vm/{number % 7}", n=number): f"vm/{number % 7}" for number in range(50)}
    async with running(made.cache):
        await made.cache.wait_fresh()
        first = min(revisions)
        async with made.cache.watch(after=first, key=key) as watch:
            assert isinstance(watch, Replay)
            revisions |= {await made.put(f"vm/{number % 7}", n=number): f"vm/{number % 7}" for number in range(50, 60)}
            expected = [(revision, each) for revision, each in revisions.items() if revision > first and (not key or key == each)]
            events = await read(watch, len(expected))
            assert [(event.revision, event.item and event.item.key) for event in events] == expected
            assert watch.take() == []
            assert watch.revision >= expected[-1][0]
            await made.put("vm/3", n=60)
            assert [event.item and event.item.object["n"] for event in await read(watch, 1)] == [60]
        assert made.cache._history._replays == 0


async def test_4_old_watch_is_read_in_batches_until_the_cache_stops(make_world: Callable[..., World]) -> None:
    made = make_world(capacity=10)
    revisions = [await made.put("vm/a", n=number) for number in range(50)]
    async with asyncio.TaskGroup() as tasks:
        caching = tasks.create_task(made.cache.run())
        await made.cache.wait_fresh()
        async with made.cache.watch(after=revisions[0]) as watch:
            told: list[int] = []
            while len(told) < 49:
                told += [event.revision for event in await watch.batch()]
                assert watch.revision >= told[-1]
            assert told == revisions[1:]
            last = await made.put("vm/a", n=50)
            assert [event.revision for event in await watch.batch()] == [last]
            caching.cancel()
            assert await watch.batch() == []


async def test_4_only_so_many_watches_read_the_far_past_at_once(make_world: Callable[..., World]) -> None:
    made = make_world(capacity=10, replays=1)
    revisions = [await made.put("vm/a", n=number) for number in range(50)]
    async with running(made.cache):
        await made.cache.wait_fresh()
        async with made.cache.watch(after=revisions[0]):
            with pytest.raises(errors.TooManyRequests):
                async with made.cache.watch(after=revisions[0]):
                    pass
        async with made.cache.watch(after=revisions[0]) as watch:
            assert [event.revision for event in await read(watch, 3)] == revisions[1:4]


async def test_4_old_watch_that_is_compacted_meanwhile_expires(make_world: Callable[..., World]) -> None:
    made = make_world(capacity=10)
    revisions = [await made.put("vm/a", n=number) for number in range(50)]
    async with running(made.cache):
        await made.cache.wait_fresh()
        async with made.cache.watch(after=revisions[0]) as watch:
            assert watch.revision == revisions[0]
            await made.storage.compact(revisions[-1])
            with pytest.raises(errors.Expired):
                await anext(watch)


async def test_4_history_that_storage_delays_is_unavailable(make_world: Callable[..., World]) -> None:
    made = make_world(times=Times(history=0.05))
    first = await made.put("vm/a")
    await made.put("vm/a", n=2)
    async with running(made.cache):
        await made.cache.wait_fresh()
        made.storage.is_out = True
        with pytest.raises(errors.ServiceUnavailable):
            async with made.cache.watch(after=first):
                pass
        made.storage.is_out = False
        async with made.cache.watch(after=first) as watch:
            assert told(await read(watch, 1)) == [("MODIFIED", "vm/a")]


async def test_4_a_slow_watch_is_cut_off_and_others_are_not(make_world: Callable[..., World]) -> None:
    made = make_world(capacity=16)
    async with running(made.cache):
        await made.cache.wait_fresh()
        async with made.cache.watch(after=made.cache.revision) as slow, made.cache.watch(after=made.cache.revision) as quick:
            for number in range(100):
                await made.put("vm/a", n=number)
                assert (await read(quick, 1))[0].item is not None
            with pytest.raises(errors.Expired):
                await anext(slow)


async def test_a_moment_after_each_listing_free_memory_is_given_back(make_world: Callable[..., World]) -> None:
    given_back: list[int] = []
    made: World = make_world(timeout_seconds=2.0, times=Times(settled=0.01), give_back=lambda: given_back.append(made.cache.listings))
    async with running(made.cache):
        await made.cache.wait_fresh()
        assert given_back == []
        await asyncio.sleep(0.05)
        made.storage.connected.clear()
        await made.storage.compact(await made.put("vm/b"))
        made.storage.connected.set()
        await made.cache.wait_fresh(await made.storage.revision())
        await asyncio.sleep(0.05)
    assert given_back == [1, 2]


async def test_4_compaction_past_the_cache_relists_and_expires_watches(make_world: Callable[..., World]) -> None:
    made = make_world(timeout_seconds=2.0)
    await made.put("vm/a", n=1)
    await made.put("vm/gone")
    async with running(made.cache):
        await made.cache.wait_fresh()
        async with made.cache.watch(after=made.cache.revision) as watch, made.cache.watch(after=made.cache.revision + 50) as future:
            made.storage.connected.clear()
            await made.put("vm/a", n=2)
            await made.delete("vm/gone")
            await made.storage.compact(await made.put("vm/b"))
            made.storage.connected.set()
            await made.cache.wait_fresh(await made.storage.revision())
            assert [(item.key, item.object.get("n")) for item in made.cache.list().items] == [("vm/a", 2), ("vm/b", None)]
            assert made.cache.listings == 2
            with pytest.raises(errors.Expired):
                await anext(watch)
            begin = future.revision
            while await made.put("vm/c") <= begin:
                pass
            assert [event.revision for event in await read(future, 1)] == [begin + 1]


async def test_4_a_cache_that_was_never_listed_refuses_watches(make_world: Callable[..., World]) -> None:
    with pytest.raises(errors.TooManyRequests):
        async with make_world().cache.watch(after=1):
            pass


# 5: outages


async def test_5_outage_keeps_watches_and_fails_fresh_reads_in_time(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.put("vm/a")
    await world.cache.wait_fresh()
    async with world.cache.watch(after=world.cache.revision) as watch:
        world.storage.is_out = True
        with pytest.raises(errors.ServiceUnavailable, match=r"cannot read the storage$"):
            await world.cache.wait_fresh()
        assert "the store is out" in {getattr(each, "error", "") for each in caplog.records}
        assert world.cache.get("vm/a") is not None
        world.storage.is_out = False
        await world.put("vm/b")
        assert told(await read(watch, 1)) == [("ADDED", "vm/b")]
        assert await world.cache.wait_fresh() == world.cache.revision


async def test_5_hanging_storage_is_reported_in_time_and_not_reawaited(impatient: World) -> None:
    asked = impatient.storage.calls.get("revision", 0)
    impatient.storage.answering.clear()
    with pytest.raises(errors.ServiceUnavailable, match="the storage does not respond"):
        await impatient.cache.wait_fresh()
    again = impatient.cache.wait_fresh()
    with pytest.raises(errors.ServiceUnavailable, match="the storage does not respond"):
        again.send(None)
    assert impatient.storage.calls["revision"] == asked + 1
    impatient.storage.answering.set()
    async with asyncio.timeout(30):
        while not await is_fresh(impatient):
            await asyncio.sleep(0.05)


async def is_fresh(world: World) -> bool:
    try:
        await world.cache.wait_fresh()
    except errors.ServiceUnavailable:
        return False
    return True


async def test_5_cache_behind_a_working_storage_has_its_own_error(impatient: World) -> None:
    impatient.storage.connected.clear()
    await impatient.put("vm/a")
    with pytest.raises(errors.Timeout, match="the watch cache is behind the storage"):
        await impatient.cache.wait_fresh()


async def test_5_a_storage_that_is_out_at_the_start_is_tried_again(make_world: Callable[..., World]) -> None:
    made = make_world(timeout_seconds=5.0)
    made.storage.is_out = True
    async with running(made.cache):
        await asyncio.sleep(0.15)
        assert not made.cache.synced.is_set()
        made.storage.is_out = False
        await made.put("vm/a")
        await made.cache.wait_fresh()
        assert made.cache.get("vm/a") is not None


async def test_5_idle_cache_requests_progress_before_compaction(make_world: Callable[..., World]) -> None:
    made = make_world(times=Times(idle=0.01))
    async with running(made.cache):
        await made.cache.synced.wait()
        revision = await made.put("elsewhere/a")
        await promptly(lambda: made.cache.revision >= revision, 2)


# 6: undecodable entries


async def test_6_undecodable_entry_is_reported_and_left_out(make_world: Callable[..., World]) -> None:
    made = make_world()
    await made.put("vm/a")
    bad = await made.storage.commit([], [Put("vm/bad", b"\xff not JSON")])
    async with running(made.cache):
        await made.cache.wait_fresh()
        assert [item.key for item in made.cache.list().items] == ["vm/a"]
        assert [(report.key, report.revision) for report in made.reports] == [("vm/bad", bad)]
        async with made.cache.watch(after=made.cache.revision) as watch:
            await made.put("vm/bad", n=1)
            await made.storage.commit([], [Put("vm/bad", b"[]")])
            await made.storage.commit([], [Put("vm/bad", b"{")])
            await made.delete("vm/bad")
            await made.put("vm/b")
            assert told(await read(watch, 3)) == [("ADDED", "vm/bad"), ("DELETED", "vm/bad"), ("ADDED", "vm/b")]
        assert len(made.reports) == 3
        assert made.cache.undecodable == {}


async def test_6_what_cannot_be_decoded_is_passed_over_in_the_past_too(make_world: Callable[..., World]) -> None:
    made = make_world()
    first = await made.put("vm/a")
    await made.storage.commit([], [Put("vm/bad", b"{")])
    await made.put("vm/bad", n=1)
    async with running(made.cache):
        await made.cache.wait_fresh()
        async with made.cache.watch(after=first) as watch:
            assert told(await read(watch, 1)) == [("ADDED", "vm/bad")]


# 7: compared


async def test_7_a_cache_that_equals_the_storage_passes_the_comparison(make_world: Callable[..., World]) -> None:
    made = make_world()
    for part in range(3):
        await made.storage.commit([], [Put(f"vm/{part:02}/{number:03}", b"{}") for number in range(100)])
    await made.storage.commit([], [Put("vm/01/bad", b"{")])
    async with running(made.cache):
        await made.cache.wait_fresh()
        await made.put("vm/01/001", n=1)
        assert await made.cache.check()
        assert made.cache.checks == {"success": 1, "failure": 0, "error": 0}


@pytest.mark.parametrize("wrong", ["absent", "surplus", "old", "last"])
async def test_7_wrong_cache_is_distrusted_and_reread(make_world: Callable[..., World], wrong: str) -> None:
    made = make_world(times=Times(check=0.02))
    for number in range(5):
        await made.put(f"vm/{number}", n=number)
    async with running(made.cache):
        await made.cache.wait_fresh()
        async with made.cache.watch(after=made.cache.revision) as watch:
            right = made.cache.list().items
            match wrong:
                case "absent":
                    made.cache._items.remove("vm/2")
                case "last":
                    made.cache._items.remove("vm/4")
                case "surplus":
                    made.cache._items.put(Item("vm/22", 3, None, b"{}"))
                case _:
                    made.cache._items.put(Item("vm/2", 1, None, b"{}"))
            async with asyncio.timeout(30):
                while not made.cache.checks["failure"]:
                    await asyncio.sleep(0.005)
                while not made.cache.is_usable:
                    await asyncio.sleep(0.001)
            assert made.cache.list().items == right
            assert made.cache.listings == 2
            await made.put("vm/9")
            async with asyncio.timeout(30):
                while await made.cache.wait_fresh() and not made.cache.checks["success"]:
                    await asyncio.sleep(0.005)
            assert [event.item and event.item.key for event in await read(watch, 1)] == ["vm/9"]


async def test_7_a_comparison_that_cannot_be_made_changes_nothing(world: World) -> None:
    world.storage.is_out = True
    assert await world.cache.check()
    assert world.cache.checks == {"success": 0, "failure": 0, "error": 1}
    assert world.cache.is_usable


# the window


async def test_watches_read_in_chunks_and_miss_nothing(make_world: Callable[..., World]) -> None:
    made = make_world(limits=Limits(chunk=3))
    async with running(made.cache):
        await made.cache.wait_fresh()
        after = made.cache.revision
        revisions = [await made.put(f"vm/{number % 2}", n=number) for number in range(20)]
        await made.cache.wait_fresh()
        async with made.cache.watch(after=after) as watch:
            assert [event.revision for event in await read(watch, 20)] == revisions
        async with made.cache.watch(after=after, predicate=lambda item: item.object["n"] == 19) as watch:
            assert [event.revision for event in await read(watch, 1)] == revisions[19:]
