import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from apiserver.registry.cacher.watchcache import EventType, Item, WatchCache
from storage.etcd.store import EtcdStorage, Settings
from storage.port import Delete, Entry, Put, Unavailable
from tests.fakes.etcd_server import EtcdServer
from tests.own_time import within


def decode(entry: Entry) -> Item:
    data = {"number": json.loads(entry.value), "metadata": {"resourceVersion": str(entry.mod_revision)}}
    return Item(entry.key, entry.mod_revision, None, json.dumps(data).encode())


@asynccontextmanager
async def cached(store: EtcdStorage) -> AsyncIterator[WatchCache]:
    cache = WatchCache(store, "vm/", decode)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(cache.run())
        await cache.wait_fresh()
        yield cache
        running.cancel()


async def test_reads_are_fresh_though_only_other_prefixes_change(etcd_server: EtcdServer) -> None:
    store = EtcdStorage(Settings((etcd_server.endpoint,), prefix="/cache/"))
    async with cached(store) as cache:

        async def read_often() -> None:
            for number in range(20):
                revision = await store.commit([], [Put("elsewhere/a", b"%d" % number)])
                assert await cache.wait_fresh() >= revision

        await within(20 * 0.1, read_often())
    await store.close()


async def test_the_cache_and_its_watches_outlive_kills_of_etcd(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path / "etcd", durable=True)
    server.start()
    store = EtcdStorage(Settings((server.endpoint,)))
    folded: dict[str, int] = {}
    try:
        async with cached(store) as cache:

            async def fold() -> None:
                revision = cache.revision
                async with cache.watch(after=revision) as watch:
                    async for event in watch:
                        assert event.item is not None
                        assert event.revision > revision
                        revision = event.revision
                        if event.type is EventType.DELETED:
                            del folded[event.item.key]
                        else:
                            folded[event.item.key] = event.item.object["number"]

            async with asyncio.TaskGroup() as tasks:
                folding = tasks.create_task(fold())
                await asyncio.sleep(0)
                for kill in range(3):
                    for number in range(30):
                        await again(store, Put(f"vm/{number % 7}", b"%d" % (100 * kill + number)))
                    await again(store, Delete(f"vm/{kill}"))
                    server.kill()
                    await asyncio.to_thread(server.start)
                await cache.wait_fresh()
                listed = {item.key: item.object["number"] for item in cache.list().items}
                stored = {entry.key: json.loads(entry.value) for entry in (await store.range("vm/")).entries}
                assert listed == stored
                async with asyncio.timeout(20):
                    while folded != stored:
                        await asyncio.sleep(0.05)
                assert cache.listings == 1
                folding.cancel()
    finally:
        await store.close()
        server.close()


async def again(store: EtcdStorage, write: Put | Delete) -> None:
    while True:
        try:
            await store.commit([], [write])
        except Unavailable:
            continue
        return


async def test_a_restored_backup_is_what_the_cache_shows(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path / "etcd", durable=True)
    server.start()
    store = EtcdStorage(Settings((server.endpoint,)))
    try:
        await store.commit([], [Put("vm/a", b"1")])
        async with cached(store) as cache:
            server.kill()
            server.back_up()
            await asyncio.to_thread(server.start)
            last = 0
            for number in range(10):
                last = await store.commit([], [Put("vm/a", b"2"), Put(f"vm/{number}", b"3")])
            assert await cache.wait_fresh() >= last
            server.kill()
            server.restore()
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(20):
                while [(item.key, item.object["number"]) for item in cache.list().items] != [("vm/a", 1)]:
                    await asyncio.sleep(0.05)
            again = await store.commit([], [Put("vm/b", b"4")])
            assert again < last
            assert await cache.wait_fresh() >= again
            assert len(cache.list().items) == 2
    finally:
        await store.close()
        server.close()
