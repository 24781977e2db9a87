"""Promise 3 of the watch cache as a property, with compaction, lost connections, restarts and slow readers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from apiserver.apis.meta import errors
from apiserver.registry.cacher.history import Replay
from apiserver.registry.cacher.watchcache import Event, EventType, Item, Predicate, Times, Watch, WatchCache
from apiserver.registry.cacher.window import Limits
from storage.port import Delete, Entry, Put
from tests.fakes.storage import UnreliableStorage

KEYS = ("vm/a/1", "vm/a/2", "vm/b/1", "elsewhere/1")
BAD = -1


def decode(entry: Entry) -> Item:
    number = json.loads(entry.value)
    if number == BAD:
        raise ValueError("undecodable")
    return Item(entry.key, entry.mod_revision, None, b'{"number":%d,"metadata":{"resourceVersion":"%d"}}' % (number, entry.mod_revision))


def is_even(item: Item) -> bool:
    return bool(item.object["number"] % 2 == 0)


class Folder:
    def __init__(self, prefix: str, predicate: Predicate | None) -> None:
        self._prefix = prefix
        self._predicate = predicate
        self._stack = AsyncExitStack()
        self._watch: Watch | Replay | None = None
        self.revision = 0
        self.folded = 0
        self.state: dict[str, Item] = {}

    def expected(self, cache: WatchCache) -> dict[str, Item]:
        return {item.key: item for item in cache.list(self._prefix).items if self._predicate is None or self._predicate(item)}

    async def resume(self, cache: WatchCache) -> None:
        await self._stack.aclose()
        for _ in range(2):
            try:
                if self.revision and self.folded <= self.revision:
                    self._watch = await self._stack.enter_async_context(
                        cache.watch(self._prefix, after=self.revision, predicate=self._predicate)
                    )
                    return
            except (errors.Expired, errors.ServiceUnavailable):
                pass
            self.state, self.revision = self.expected(cache), cache.list(self._prefix).revision
            self.folded = self.revision
        raise AssertionError("a watch from the snapshot's own revision expired")

    async def read(self, cache: WatchCache, *, patiently: bool) -> None:
        if self._watch is None:
            return
        try:
            if patiently:
                async with asyncio.timeout(0.001):
                    self.fold(await anext(self._watch))
            for event in self._watch.take():
                self.fold(event)
        except TimeoutError:
            if isinstance(self._watch, Replay) and self._watch._live is None:
                self.revision = max(self.revision, self._watch.revision)
                await self.resume(cache)
        except errors.Expired:
            self.revision = 0
            await self.resume(cache)
        except StopAsyncIteration:
            return
        self.revision = max(self.revision, self._watch.revision)

    def fold(self, event: Event) -> None:
        assert event.item is not None
        assert event.item.revision == event.revision
        assert event.revision >= self.revision
        self.folded = event.revision
        key = event.item.key
        assert key.startswith(self._prefix)
        if event.type is EventType.ADDED:
            assert key not in self.state
        else:
            assert event.previous == self.state[key]
        if event.type is EventType.DELETED:
            last = self.state.pop(key)
            assert event.item.object["number"] == last.object["number"]
            assert event.item.object["metadata"] == {"resourceVersion": str(event.revision)}
            assert event.revision > last.revision
        else:
            self.state[key] = event.item

    async def close(self) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def serving(storage: UnreliableStorage, capacity: int, limits: Limits) -> AsyncIterator[WatchCache]:
    cache = WatchCache(storage, "vm/", decode, capacity=capacity, times=Times(history=0.005), limits=limits)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(cache.run())
        async with asyncio.timeout(30):
            await cache.synced.wait()
        yield cache
        task.cancel()


writes = st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(BAD, 3), min_size=1, max_size=3)
actions = st.one_of(
    st.tuples(st.just("write"), writes),
    st.tuples(st.just("write"), writes),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("disconnect"), st.none()),
    st.tuples(st.just("connect"), st.none()),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("progress"), st.none()),
    st.tuples(st.just("let run"), st.integers(1, 5)),
    st.tuples(st.just("read"), st.integers(0, 3)),
    st.tuples(st.just("take"), st.integers(0, 3)),
    st.tuples(st.just("resume"), st.integers(0, 3)),
)


class Scenario:
    def __init__(self, capacity: int, limits: Limits) -> None:
        self.capacity = capacity
        self.limits = limits
        self.storage = UnreliableStorage()
        self.folders = [Folder("vm/", None), Folder("vm/", is_even), Folder("vm/a/", None), Folder("vm/a/", is_even)]
        self.expirations = 0

    async def play(self, script: list[tuple[str, object]]) -> None:
        while script:
            async with serving(self.storage, self.capacity, self.limits) as cache:
                for folder in self.folders:
                    await folder.resume(cache)
                while script:
                    action, argument = script.pop(0)
                    if action == "restart":
                        break
                    await self.act(cache, action, argument)
                if not script:
                    await self.finish(cache)

    async def act(self, cache: WatchCache, action: str, argument: object) -> None:
        match action, argument:
            case "write", dict():
                operations = [Delete(key) if value is None else Put(key, json.dumps(value).encode()) for key, value in argument.items()]
                await self.storage.commit([], operations)
            case "compact", _:
                await self.storage.compact(await self.storage.revision())
            case "disconnect", _:
                self.storage.connected.clear()
            case "connect", _:
                self.storage.connected.set()
            case "progress", _:
                await self.storage.request_progress()
            case "let run", int():
                for _ in range(argument):
                    await asyncio.sleep(0)
            case "read", int():
                await self.folders[argument].read(cache, patiently=True)
            case "take", int():
                await self.folders[argument].read(cache, patiently=False)
            case "resume", int():
                await self.folders[argument].resume(cache)
            case _:
                raise AssertionError(action)

    async def finish(self, cache: WatchCache) -> None:
        self.storage.connected.set()
        await cache.wait_fresh()
        present = {entry.key: decode(entry) for entry in (await self.storage.range("vm/")).entries if json.loads(entry.value) != BAD}
        assert {item.key: item for item in cache.list().items} == present
        assert set(cache.undecodable) == {e.key for e in (await self.storage.range("vm/")).entries} - set(present)
        for folder in self.folders:
            async with asyncio.timeout(30):
                while folder.revision < cache.revision:
                    await folder.read(cache, patiently=True)
            assert folder.state == folder.expected(cache)
            await folder.close()


INTERRUPTED = [
    ("write", {"vm/a/1": 0}),
    ("write", {"vm/a/1": None}),
    ("take", 0),
    ("write", {"vm/a/1": None}),
    ("resume", 0),
]
COMPACTED_TWICE = [
    ("write", {"vm/a/1": 0}),
    ("disconnect", None),
    ("compact", None),
    ("write", {"elsewhere/1": 0}),
    ("compact", None),
]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@example(script=INTERRUPTED, capacity=2, chunk=1)
@example(script=COMPACTED_TWICE, capacity=2, chunk=1)
@given(script=st.lists(actions, min_size=1, max_size=40), capacity=st.sampled_from((2, 4, 64)), chunk=st.sampled_from((1, 2, 256)))
def test_events_folded_over_a_snapshot_equal_the_list(script: list[tuple[str, object]], capacity: int, chunk: int) -> None:
    asyncio.run(Scenario(capacity, Limits(chunk=chunk, dropped=1)).play(list(script)))
