"""Costs of the watch cache by the number of objects: ``python -m benchmarks.watchcache``; one JSON object per line.

It applies entries of 4.5 KB, in storage's format, directly to the cache. ``--count`` may be repeated.
"""

import argparse
import asyncio
import gc
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import uvloop

from apiserver.apis.meta import schema
from apiserver.apis.meta.resources import Resource
from apiserver.registry.cacher.items import Item
from apiserver.registry.cacher.watchcache import Event, EventBatch, WatchCache
from apiserver.registry.generic import codec, selection
from apiserver.registry.generic.strategy import Strategy
from storage.memory import MemoryStorage
from storage.port import Batch, Change, Entry
from tests.cluster import processes

PREFIX = "/registry/bench.test/things/"
SIZE = 4500


class Things(Strategy):
    """A minimal kind."""

    resource = Resource("bench.test", "v1", "things", "Thing")
    singular = "thing"
    model = schema.Model

    def selectable_fields(self, obj: dict[str, Any]) -> dict[str, str]:
        """Return the field for selection by node."""
        return {"spec.nodeName": (obj.get("spec") or {}).get("nodeName") or ""}


STRATEGY = Things()


def entry(number: int, revision: int, generation: int = 1) -> Entry:
    labels = {"app": f"app-{number % 1000}", "zone": f"zone-{number % 3}"}
    metadata = {"namespace": f"ns-{number % 50}", "name": f"thing-{number:07}", "labels": labels, "generation": generation}
    spec = {"nodeName": f"node-{number % 1000}", "fill": [f"{number + position:08x}" for position in range((SIZE - 250) // 11)]}
    obj = {"apiVersion": "bench.test/v1", "kind": "Thing", "metadata": metadata, "spec": spec}
    return Entry(f"{PREFIX}ns-{number % 50}/thing-{number:07}", codec.encode(STRATEGY, obj), revision, revision)


def resident() -> int:
    gc.collect()
    return processes.resident_kib(os.getpid()) << 10


def say(**figures: str | float) -> None:
    print(json.dumps(figures), flush=True)


def timed(name: str, repeats: int, work: Callable[[], object], per: int = 1) -> None:
    best = min(once(work) for _ in range(repeats))
    say(name=name, microseconds=round(best / per * 1e6, 2))


def once(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def fill(cache: WatchCache, count: int) -> None:
    for number in range(count):
        made = entry(number, number + 2)
        apply(cache, [Batch(made.mod_revision, (Change(made.key, made, None),))])


def apply(cache: WatchCache, batches: Iterable[Batch]) -> None:
    for batch in batches:
        cache._apply(batch)  # noqa: SLF001  # the measured function


async def measure(count: int) -> None:
    base = resident()
    cache = WatchCache(MemoryStorage(), PREFIX, partial(codec.decode, STRATEGY))
    fill(cache, count)
    sizes = sum(len(item.data) for item in cache.list().items) / count
    say(name="memory", objects=count, bytes_per_object=round((resident() - base) / count), bytes_on_the_wire=round(sizes))
    revision = cache.revision
    writes = 2000
    changed = [entry((number * 7919) % count, revision + number, 2) for number in range(1, writes + 1)]
    new = [entry(count + (number * 7919) % 100_000_000, revision + writes + number) for number in range(1, writes + 1)]
    for name, entries in (("update", changed), ("insert", new)):
        batches = [Batch(each.mod_revision, (Change(each.key, each, None),)) for each in entries]
        timed(f"{name} at {count} objects, per event", 1, partial(apply, cache, batches), writes)
    gone = [Batch(revision + 2 * writes + number, (Change(each.key, None, None),)) for number, each in enumerate(new, 1)]
    timed(f"remove at {count} objects, per event", 1, partial(apply, cache, gone), writes)
    keys = [item.key for item in cache.list().items][:: max(count // 1000, 1)]
    timed("get", 5, lambda: [cache.get(key) for key in keys], len(keys))
    timed("list, all", 5, cache.list)
    timed("list, join all", 3, lambda: b",".join([item.data for item in cache.list().items]))
    for label, field in (("app=app-7", ""), ("zone=zone-1", ""), ("zone notin (zone-1,zone-2)", ""), ("", "spec.nodeName=node-7")):
        chosen = selection.parse(STRATEGY, label, field)
        if chosen.trigger is not None:
            began = time.perf_counter()
            await cache.prepare(chosen.trigger)
            say(name=f"index {label or field}", milliseconds=round((time.perf_counter() - began) * 1e3, 2))
        timed(f"list {label or field}", 3, partial(chosen_of, cache, chosen))
    say(name="memory, with indices", bytes_per_object=round((resident() - base) / count))


def chosen_of(cache: WatchCache, chosen: selection.Selection) -> list[Item]:
    page = cache.list(trigger=chosen.trigger)
    return list(page.items) if page.by_trigger and chosen.is_trigger else chosen.among(page.items)


async def measure_watches(watches: int, kind: str) -> None:
    cache = WatchCache(MemoryStorage(), PREFIX, partial(codec.decode, STRATEGY))
    cache.synced.set()
    fill(cache, 2000)
    heard = [0]

    async def listen(number: int) -> None:
        label, field, key = "", "", ""
        match kind:
            case "one label each":
                label = f"app=app-{number % 1000}"
            case "one field each":
                field = f"spec.nodeName=node-{number % 1000}"
            case "a set of labels":
                label = "zone notin (zone-9)"
            case "one name each":
                key = entry(number % 2000, 1).key
            case _:
                pass
        chosen = selection.parse(STRATEGY, label, field)
        async with cache.watch(
            PREFIX, after=cache.revision, predicate=None if chosen.is_everything else chosen, trigger=chosen.trigger, key=key
        ) as events:
            await events.tell(Reader(heard))

    events = 200
    batches = []
    for number in range(events):
        made = entry(number, cache.revision + number + 1, 2)
        batches.append(Batch(made.mod_revision, (Change(made.key, made, None),)))
    async with asyncio.TaskGroup() as tasks:
        listening = [tasks.create_task(listen(number)) for number in range(watches)]
        await asyncio.sleep(0.1)
        began = time.process_time()
        for batch in batches:
            cache._apply(batch)  # noqa: SLF001 - as the cache's loop does for storage events
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        spent = time.process_time() - began
        for each in listening:
            each.cancel()
    say(
        name=f"{watches} watches of {kind}",
        microseconds_per_event=round(spent / events * 1e6, 1),
        told_per_event=round(heard[0] / events, 1),
        microseconds_per_told=round(spent / max(heard[0], 1) * 1e6, 2),
    )


class Reader:
    """A client that reads everything."""

    def __init__(self, heard: list[int]) -> None:
        self._heard = heard

    def receive(self, batch: EventBatch) -> bool:
        """Encode the batch, count its events, and return True: there is room for more."""
        self._heard[0] += len(batch.written("json", frames))
        return True

    async def room(self) -> None:
        """Return at once: room never runs out."""


def frames(events: Sequence[Event]) -> list[bytes]:
    return [event.framed("json", frame) for event in events]


def frame(event: Event) -> bytes:
    assert event.item is not None
    return b'{"type":"%b","object":%b}\n' % (event.type.value.encode(), event.item.data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, action="append")
    parser.add_argument("--watches", type=int, default=2000)
    given = parser.parse_args()
    gc.set_threshold(50_000, 20, 20)  # like virt-api
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for count in given.count or [1_000, 10_000, 100_000]:
            runner.run(measure(count))
        for kind in ("everything", "a set of labels", "one label each", "one field each", "one name each"):
            runner.run(measure_watches(given.watches, kind))


if __name__ == "__main__":
    main()
