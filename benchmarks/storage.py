"""What the storage and the watch cache cost: ``python -m benchmarks.storage [--storage memory|etcd] [--no-uvloop]``.

Prints one JSON object a line: operations a second and microseconds of our own CPU for each, with values of 2.5 KB and 16 callers.
etcd runs on loopback without fsync, so that the client is measured and not the disk.
"""

import argparse
import asyncio
import json
import os
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import uvloop

from apiserver.registry.generic.watchcache import Item, WatchCache
from storage.memory import MemoryStorage
from storage.port import Entry, Put, Storage

CALLERS = 16
VALUE = json.dumps({"kind": "VirtualMachine", "metadata": {"name": "vm"}, "spec": {str(n): "x" * 60 for n in range(36)}}).encode()


def report(name: str, count: int, wall: float, cpu: float) -> None:
    figures = {"name": name, "count": count, "per_second": round(count / wall), "cpu_us": round(cpu / count * 1e6, 1)}
    print(json.dumps(figures), flush=True)


@contextmanager
def measured(name: str, count: int) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    report(name, count, time.perf_counter() - wall, time.process_time() - cpu)


async def repeated(name: str, count: int, work: Callable[[int], Awaitable[object]]) -> None:
    async def call(first: int) -> None:
        for number in range(first, count, CALLERS):
            await work(number)

    with measured(name, count):
        async with asyncio.TaskGroup() as tasks:
            for caller in range(CALLERS):
                tasks.create_task(call(caller))


def decode(entry: Entry) -> Item:
    value = orjson.loads(entry.value)
    value["metadata"]["resourceVersion"] = str(entry.mod_revision)
    return Item(entry.key, entry.mod_revision, value, orjson.dumps(value))


async def measure_storage(storage: Storage, count: int) -> None:
    begin = await storage.revision()
    await repeated("commit", count, lambda number: storage.commit([], [Put(f"vm/{number:06}", VALUE)]))
    await repeated("get", count, lambda number: storage.get(f"vm/{number:06}"))
    await repeated("revision", count, lambda _: storage.revision())
    with measured("range, per key", count):
        await storage.range("vm/")
    with measured("watch, replayed changes", count):
        seen = 0
        async with storage.watch("vm/", after=begin) as batches:
            async for batch in batches:
                seen += len(batch.changes)
                if seen >= count:
                    break


async def measure_cache(storage: Storage, count: int, watches: int) -> None:
    cache = WatchCache(storage, "vm/", decode)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(cache.run())
        with measured("cache: list from storage, per key", count):
            await cache.synced.wait()
        await repeated("cache: wait_fresh and get", count, lambda number: fresh_get(cache, number))
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


async def run(storage: Storage, count: int) -> None:
    await measure_storage(storage, count)
    await measure_cache(storage, count, watches=100)
    await storage.close()
    print(json.dumps({"name": "peak resident", "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


async def run_etcd(count: int) -> None:
    from storage.etcd.store import EtcdStorage, Settings  # it costs 17 MB, which the other kind shall not be charged
    from tests.fakes.etcd_server import EtcdServer

    with tempfile.TemporaryDirectory() as directory:
        server = EtcdServer(Path(directory, "etcd"), durable=False)
        server.start()
        try:
            await run(EtcdStorage(Settings((server.endpoint,))), count)
        finally:
            server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", choices=("memory", "etcd"), default="etcd")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--no-uvloop", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    with asyncio.Runner(loop_factory=None if options.no_uvloop else uvloop.new_event_loop) as runner:
        runner.run(run_etcd(options.count) if options.storage == "etcd" else run(MemoryStorage(), options.count))


if __name__ == "__main__":
    main()
