"""The objects of one prefix of the storage, kept in memory by a watch.

What may be relied on (``tests/unit/apiserver/registry/cacher/test_watchcache.py``):

1. After ``wait_fresh()``, ``get`` and ``list`` show every write that was acknowledged before the call.
2. ``list`` is one picture: every change at or below ``Snapshot.revision``, none above.
3. ``watch(after=snapshot.revision)`` tells every later change of the prefix once, in the order of revisions. Folding its events over
   the snapshot gives a later snapshot, whatever the selector: what stops matching is told as DELETED.
4. A watch begins at any revision that the storage has not compacted. When changes cannot be told any more (too slow, compacted) it raises
   ``Expired``; it never skips.
5. While the storage is out, watches stay, ``get`` and ``list`` show the last picture, and ``wait_fresh`` fails within its bound.
6. An entry that cannot be decoded is as good as absent: reported, and told as DELETED if it was seen before.
7. What the cache holds is compared with the storage every few minutes; if they differ it is not ``is_usable`` until it was read anew.

It knows nothing of kinds: ``decode`` turns an entry into an ``Item``.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import errors
from apiserver.apis.meta.backoff import pause_seconds
from apiserver.registry.cacher import consistency, memory
from apiserver.registry.cacher.audiences import Trigger
from apiserver.registry.cacher.changes import Event, EventBatch, EventType, Predicate, Receiver, Record
from apiserver.registry.cacher.freshness import IDLE_SECONDS, Freshness
from apiserver.registry.cacher.history import REPLAYS, TIMEOUT_SECONDS, History, Replay
from apiserver.registry.cacher.indexing import Indices
from apiserver.registry.cacher.items import DECODING_ERRORS, Item, Snapshot, SortedItems
from apiserver.registry.cacher.window import LIMITS, Limits, Watch, Window
from apiserver.registry.cacher.writes import Writes
from storage.port import Batch, Change, Compacted, Entry, Storage, StorageError

__all__ = [
    "Event",
    "EventBatch",
    "EventType",
    "Item",
    "Predicate",
    "Receiver",
    "Snapshot",
    "Trigger",
    "Undecodable",
    "Watch",
    "WatchCache"
]  # fmt: skip

logger = logging.getLogger(__name__)

PAGE_LIMIT = 500  # entries read at once when listing: some 2.5 MB of our objects, and a few milliseconds of decoding
FIRST_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a watch cache."""

    idle: float = IDLE_SECONDS
    """Between questions for progress while nothing happens."""
    history: float = TIMEOUT_SECONDS
    """For the storage to tell what happened before the window."""
    settled: float = 1.0
    """After a listing: the buffers that it was read into are free then, too."""
    check: float = 300.0
    """Between comparisons with the storage."""


TIMES: Final = Times()

Decode = Callable[[Entry], Item]


@dataclass(frozen=True, slots=True)
class Undecodable:
    """An entry that is in the storage and that ``decode`` refused."""

    key: str
    revision: int
    error: str


class WatchCache:
    """See the module's promises. ``run`` must run; ``synced`` is set once the first listing is complete."""

    def __init__(
        self,
        storage: Storage,
        prefix: str,
        decode: Decode,
        *,
        capacity: int = 2048,
        timeout_seconds: float = 3.0,
        on_undecodable: Callable[[Undecodable], None] | None = None,
        times: Times = TIMES,
        limits: Limits = LIMITS,
        replays: int = REPLAYS,
        give_back: Callable[[], None] = memory.give_back,
    ) -> None:
        """Cache what lies under ``prefix``.

        Args:
            storage: where it lies.
            prefix: of the keys; end it with a slash.
            decode: makes an item of an entry, with the entry's ``mod_revision`` as its resourceVersion; for a deletion it is given
                the last value with the revision of the end. Raises ValueError, LookupError, TypeError or AttributeError for bad data.
            capacity: how many changes a watch may be behind, or may reach back.
            timeout_seconds: how long ``wait_fresh`` waits (Go's watch cache: 3 s).
            on_undecodable: called once for each bad revision of a key, for a metric.
            times: seconds.
            limits: of the window.
            replays: how many watches may read the storage's history at once.
            give_back: gives memory back that is free.
        """
        self._storage = storage
        self._prefix = prefix
        self._decode = decode
        self._on_undecodable = on_undecodable
        self._times = times
        self._give_back = give_back
        self._items = SortedItems()
        self.writes = Writes()
        """Writes of this server that are under way."""
        self._indices = Indices()
        self._window = Window(capacity, limits)
        self._freshness = Freshness(storage, timeout_seconds=timeout_seconds, idle_seconds=times.idle)
        self._history = History(storage, prefix, self._read, self._window, replays=replays, timeout_seconds=times.history)
        self._following: asyncio.Timeout | None = None
        self._begun = 0.0
        self.synced = asyncio.Event()
        self.undecodable: dict[str, Undecodable] = {}
        """Objects that cannot be shown now, by key."""
        self.listings = 0
        """Number of times that everything was read: 1, and one more each time the storage compacted past us."""
        self.lists = 0
        """Lists that it answered."""
        self.list_fetched = 0
        """Objects that those looked at."""
        self.list_returned = 0
        """Objects that those returned."""
        self.consistent_reads = {"success": 0, "fallback": 0}
        """Lists of what is committed now that were answered from here, and by the storage, which did not tell in time."""
        self.dispatched = 0
        """Changes that were offered to watches."""
        self.decode_errors = 0
        """Revisions of keys that could not be decoded."""
        self.changes = 0
        """Changes that the storage told."""
        self.checks = {"success": 0, "failure": 0, "error": 0}
        """Ends of comparisons with the storage: equal, not equal, not possible."""
        self.is_usable = False
        """True if reads may be answered from here: it was listed, and no comparison found it wrong since."""

    def __len__(self) -> int:
        return len(self._items)

    @property
    def revision(self) -> int:
        """Everything at or below it is in the cache."""
        return self._window.revision

    async def run(self) -> None:
        """Keep up with the storage until cancelled; then every watch ends."""
        self._begun = asyncio.get_running_loop().time()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._freshness.run())
                tasks.create_task(self._follow())
                tasks.create_task(self._keep_checking())
        finally:
            self._window.close()

    async def wait_fresh(self, revision: int | None = None) -> int:
        """Wait until the cache has reached ``revision``; return the revision reached.

        None asks the storage for its revision, which makes the following ``get`` or ``list`` linearizable; 0 takes what there is.

        Raises:
            TooManyRequests: ``revision`` is 0 and the first listing is not complete.
            ServiceUnavailable: the storage cannot be asked.
            Timeout: not reached within the bound; with cause ResourceVersionTooLarge when ``revision`` was given.
        """
        if revision == 0 and not self.synced.is_set():
            raise self._cold()
        return await self._freshness.wait(revision)

    def get(self, key: str) -> Item | None:
        """Return the item of ``key`` as the cache has it now."""
        return self._items.get(key)

    def list(self, prefix: str = "", *, start: str = "", limit: int = 0, trigger: Trigger | None = None) -> Snapshot:
        """Return the items under ``prefix`` (default: all), from key ``start`` (inclusive) on, at most ``limit`` (0: all).

        With a ``trigger``, which excludes a limit, only those with its value are returned if an index was :meth:`prepared <prepare>`.
        """
        prefix = prefix or self._prefix
        if trigger is not None and (found := self._indices.find(trigger, prefix, start, self._items)) is not None:
            return Snapshot(found, self.revision, by_trigger=True)
        items, remaining = self._items.slice(prefix, start=start, limit=limit)
        return Snapshot(items, self.revision, remaining)

    async def prepare(self, trigger: Trigger) -> None:
        """Make ready to :meth:`list` what has the trigger's value without looking at everything."""
        await self._indices.prepare(trigger, self._items)

    def count(self, prefix: str = "") -> int:
        """Return how many items there are under ``prefix`` (default: all)."""
        return self._items.count(prefix) if prefix else len(self._items)

    @asynccontextmanager
    async def watch(
        self,
        prefix: str = "",
        *,
        after: int,
        predicate: Predicate | None = None,
        bookmark_seconds: float | None = None,
        key: str = "",
        trigger: Trigger | None = None,
    ) -> AsyncIterator[Watch | Replay]:
        """Watch ``prefix`` (default: all) from the revision that follows ``after``, which may lie in the future.

        Args:
            prefix: of the keys.
            after: usually the revision of a snapshot; no await may stand between the two if nothing shall be missed or expire.
            predicate: the selector. Objects that begin to match are ADDED, those that stop are DELETED.
            bookmark_seconds: how often to yield a BOOKMARK while there is nothing else.
            key: the one key to watch, instead of a prefix.
            trigger: something that ``predicate`` implies; makes changes that do not concern the watch cost nothing.

        Raises:
            Expired: from here or from the iterator: changes after ``after`` are gone.
            TooManyRequests: the first listing is not complete; too many watches read changes that are long past.
            ServiceUnavailable: the storage cannot tell what happened before the window.
        """
        if not self.synced.is_set():
            raise self._cold()
        prefix = prefix or self._prefix

        def live(after: int) -> Watch:
            return Watch(self._window, prefix, after, predicate, bookmark_seconds, key=key, trigger=trigger)

        if after < self._window.oldest and not await self._history.reach(after):
            async with self._history.replay(live, prefix, after, predicate, key) as replay:
                yield replay
            return
        yield live(after)

    async def check(self) -> bool:
        """Compare the cache with the storage; where they differ, distrust the cache and read everything anew."""
        try:
            revision = await self._freshness.wait()
            items, _ = self._items.slice(self._prefix)
            bad = [(each.key, each.revision) for each in self.undecodable.values()]
            revision = self.revision
            differs = await consistency.difference(self._storage, self._prefix, revision, consistency.versions(items, bad))
        except (StorageError, errors.StatusError) as error:
            self.checks["error"] += 1
            logger.info("The watch cache could not be compared with the storage", extra={"prefix": self._prefix, "error": str(error)})
            return True
        self.checks["failure" if differs else "success"] += 1
        if differs:
            self.is_usable = False
            if self._following is not None:
                self._following.reschedule(asyncio.get_running_loop().time())
            logger.error(
                "The watch cache differs from the storage; reading from the storage until everything is listed anew",
                extra={"prefix": self._prefix, "revision": revision, "key": differs},
            )
        return not differs

    async def _keep_checking(self) -> None:
        while True:
            await asyncio.sleep(self._times.check * random.uniform(0.8, 1))  # noqa: S311  # no secret
            if self.is_usable:
                await self.check()

    def _cold(self) -> errors.TooManyRequests:
        waited = int(asyncio.get_running_loop().time() - self._begun) if self._begun else 1
        return errors.TooManyRequests("storage is (re)initializing", errors.Details(retry_after_seconds=min(max(waited, 1), 30)))

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                revision = await self._relist()
                asyncio.get_running_loop().call_later(self._times.settled, self._give_back)
                failures = 0
                await self._keep_up(revision)
            except TimeoutError:  # `check` found a difference
                continue
            except Compacted:
                logger.warning("The storage compacted past the watch cache; listing again", extra={"prefix": self._prefix})
            except StorageError as error:
                logger.warning("The watch cache cannot read the storage; trying again", extra={"prefix": self._prefix, "error": str(error)})
            failures += 1
            # The jitter keeps the caches of several servers from reading everything at the same moment.
            await asyncio.sleep(pause_seconds(failures, FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS) * random.uniform(0.5, 1))  # noqa: S311  # no secret

    async def _keep_up(self, revision: int) -> None:
        """Apply what happens after ``revision``.

        Raises:
            TimeoutError: a comparison found that the cache is wrong.
        """
        async with asyncio.timeout(None) as following:
            self._following = following
            try:
                async with self._storage.watch(self._prefix, after=revision, previous=False) as batches:
                    async for batch in batches:
                        self._apply(batch)
            finally:
                self._following = None

    async def _relist(self) -> int:
        self.listings += 1
        items: list[Item] = []
        bad: dict[str, Undecodable] = {}
        start, revision = "", 0
        while True:
            page = await self._storage.range(self._prefix, start=start, limit=PAGE_LIMIT, revision=revision)
            revision = page.revision
            for entry in page.entries:
                item = self._decoded(entry, bad)
                if item is not None:
                    items.append(item)
            if not page.more:
                break
            start = page.entries[-1].key + "\0"
        self._items = SortedItems(items)
        self._indices.clear()
        self.undecodable = bad
        self._window.reset(revision)
        self.is_usable = True
        self.synced.set()
        self._freshness.advance(revision)
        logger.info("The watch cache has listed", extra={"prefix": self._prefix, "items": len(items), "revision": revision})
        return revision

    def _apply(self, batch: Batch) -> None:
        self.changes += len(batch.changes)
        records = [record for change in batch.changes if (record := self._changed(change, batch.revision))]
        self.dispatched += len(records)
        self._window.extend(records, batch.revision)
        self._freshness.advance(batch.revision)

    def _changed(self, change: Change, revision: int) -> Record | None:
        old = self._items.get(change.key)
        self.undecodable.pop(change.key, None)
        new = self._decoded(change.entry, self.undecodable) if change.entry else None
        if new is not None:
            self._items.put(new)
        elif old is not None:
            self._items.remove(change.key)
        else:
            return None
        self._indices.changed(change.key, new)
        return Record(change.key, revision, old, new)

    def _decoded(self, entry: Entry, bad: dict[str, Undecodable]) -> Item | None:
        if (written := self.writes.find(entry)) is not None:
            return written
        known = self._items.get(entry.key)
        if known is not None and known.revision == entry.mod_revision:
            return known
        try:
            return self._decode(entry)
        except DECODING_ERRORS as error:
            bad[entry.key] = report = Undecodable(entry.key, entry.mod_revision, f"{type(error).__name__}: {error}"[:500])
        if self.undecodable.get(entry.key) != report or bad is self.undecodable:
            self.decode_errors += 1
            logger.error(
                "An object in the storage cannot be decoded and is not served; restore or delete it there",
                extra={"key": report.key, "revision": report.revision, "error": report.error},
            )
            if self._on_undecodable:
                self._on_undecodable(report)
        return None

    def _read(self, entry: Entry) -> Item | None:
        """Return the item of an entry of the past; what cannot be decoded was reported in its time, and was not there."""
        try:
            return self._decode(entry)
        except DECODING_ERRORS:
            return None
