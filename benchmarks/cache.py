"""Costs of the watch cache over storage in memory: ``python -m benchmarks.cache``; one JSON object per line."""

import argparse
import asyncio
import json
import resource

import orjson
import uvloop

from apiserver.registry.cacher.watchcache import Item, WatchCache
from benchmarks.measuring import measured, repeated
from benchmarks.storage import CALLERS, VALUE
from storage.memory import MemoryStorage
from storage.port import Entry, Put, Storage


def decode(entry: Entry) -> Item:
    value = orjson.loads(entry.value)
    value["metadata"]["resourceVersion"] = str(entry.mod_revision)
    return Item(entry.key, entry.mod_revision, value, orjson.dumps(value))


async def measure_cache(storage: Storage, count: int, watches: int) -> None:
    cache = WatchCache(storage, "vm/", decode)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(cache.run())
        with measured("cache: list from storage, per key", count):
            await cache.synced.wait()
        await repeated("cache: wait_fresh and get", count, lambda number: fresh_get(cache, number), callers=CALLERS)
        with measured(f"cache: list and join {count}", 20):
            for _ in range(20):
                b",".join([item.data for item in cache.list().items])
        changes = 500
        with measured(f"cache: {changes} changes told to {watches} watches, per event", changes * watches):
            async with asyncio.TaskGroup() as readers:
                for _ in range(watches):
                    readers.create_task(read(cache, changes))
                readers.create_task(write(storage, changes))
        running.cancel()


async def fresh_get(cache: WatchCache, number: int) -> Item | None:
    await cache.wait_fresh()
    return cache.get(f"vm/{number:06}")


async def read(cache: WatchCache, count: int) -> None:
    async with cache.watch(after=cache.revision) as watch:
        for _ in range(count):
            await anext(watch)


async def write(storage: Storage, count: int) -> None:
    await asyncio.sleep(0.05)
    for number in range(count):
        await storage.commit([], [Put(f"vm/{number:06}", VALUE)])


async def run(count: int) -> None:
    storage = MemoryStorage()
    await repeated("fill", count, lambda number: storage.commit([], [Put(f"vm/{number:06}", VALUE)]), callers=CALLERS)
    await measure_cache(storage, count, watches=100)
    print(json.dumps({"name": "peak resident", "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(options.count))


if __name__ == "__main__":
    main()
