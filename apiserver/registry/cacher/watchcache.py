"""The objects of one storage prefix, kept in memory by a watch.

Guarantees (``tests/unit/apiserver/registry/cacher/test_watchcache.py``):

1. After ``wait_fresh()``, ``get`` and ``list`` show every write acknowledged before the call.
2. ``list`` is a consistent snapshot: every change up to ``Snapshot.revision``, none above.
3. ``watch(after=snapshot.revision)`` sends every later change of the prefix once, in the order of revisions. Applying its
   events to the snapshot gives a later snapshot, for any selector: objects that stop matching are DELETED.
4. A watch starts at any revision that storage has not compacted. If it cannot send all changes (too slow, compacted), it
   raises ``Expired``.
5. While storage is unavailable, watches stay open, ``get`` and ``list`` show the last snapshot, and ``wait_fresh`` fails in
   time.
6. An undecodable entry counts as absent: reported, and DELETED if it was visible.
7. Every few minutes the cache is compared with storage; after a difference it is not ``is_usable`` until it has listed
   again.
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

PAGE_LIMIT = 500  # about 2.5 MB, and milliseconds of decoding
FIRST_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Times:
    """A watch cache's intervals and timeouts, in seconds."""

    idle: float = IDLE_SECONDS
    """Between progress requests."""
    history: float = TIMEOUT_SECONDS
    """For changes before the window."""
    settled: float = 1.0
    """After a listing, until its buffers are free."""
    check: float = 300.0
    """Between comparisons with storage."""


TIMES: Final = Times()

Decode = Callable[[Entry], Item]


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A stored entry that ``decode`` rejected."""

    key: str
    revision: int
    error: str


class WatchCache:
    """One storage prefix's objects in memory, while ``run`` runs; ``synced`` is set after the first listing."""

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
        """Cache the objects under ``prefix``, which ends with a slash.

        ``decode`` turns an entry into an item with its ``mod_revision`` as resourceVersion, for a deletion the last value at
        its revision; it raises one of ``DECODING_ERRORS``. ``capacity``: changes that a watch may lag or start behind.
        ``timeout_seconds``: of ``wait_fresh`` (Go: 3 s). ``on_undecodable``: called once per bad revision. ``replays``: most
        watches that read storage's history.
        """
        self._storage = storage
        self._prefix = prefix
        self._decode = decode
        self._on_undecodable = on_undecodable
        self._times = times
        self._give_back = give_back
        self._items = SortedItems()
        self.writes = Writes()
        self._indices = Indices()
        self._window = Window(capacity, limits)
        self._freshness = Freshness(storage, timeout_seconds=timeout_seconds, idle_seconds=times.idle)
        self._history = History(storage, prefix, self._read, self._window, replays=replays, timeout_seconds=times.history)
        self._following: asyncio.Timeout | None = None
        self._begun = 0.0
        self.synced = asyncio.Event()
        self.undecodable: dict[str, Undecodable] = {}
        self.listings = 0
        """1, plus one per compaction past the cache."""
        self.lists = 0
        self.list_fetched = 0
        self.list_returned = 0
        self.consistent_reads = {"success": 0, "fallback": 0}
        """Linearizable lists by the cache, or by storage because the cache was late."""
        self.dispatched = 0
        """Offered to watches."""
        self.decode_errors = 0
        """Undecodable revisions of keys."""
        self.changes = 0
        """From storage."""
        self.checks = {"success": 0, "failure": 0, "error": 0}
        """Equal, different, impossible."""
        self.is_usable = False
        """Listed, and without a difference since."""

    def __len__(self) -> int:
        return len(self._items)

    @property
    def revision(self) -> int:
        """The cache has every change up to this revision."""
        return self._window.revision

    async def run(self) -> None:
        """Follow storage until cancelled, then end every watch."""
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

        None uses storage's revision, which makes the next ``get`` or ``list`` linearizable; 0 does not wait. Raises
        TooManyRequests for 0 before the first listing; ServiceUnavailable; Timeout, with cause ResourceVersionTooLarge for a
        given ``revision``.
        """
        if revision == 0 and not self.synced.is_set():
            raise self._cold()
        return await self._freshness.wait(revision)

    def get(self, key: str) -> Item | None:
        """Return the cached item of ``key``, or None."""
        return self._items.get(key)

    def list(self, prefix: str = "", *, start: str = "", limit: int = 0, trigger: Trigger | None = None) -> Snapshot:
        """Return a ``Snapshot`` of at most ``limit`` (0: all) items under ``prefix`` (default: all), from key ``start`` on.

        With an index :meth:`prepared <prepare>` for ``trigger``, only the trigger's items, without ``limit``; then ``by_trigger`` is True.
        """
        prefix = prefix or self._prefix
        if trigger is not None and (found := self._indices.find(trigger, prefix, start, self._items)) is not None:
            return Snapshot(found, self.revision, by_trigger=True)
        items, remaining = self._items.slice(prefix, start=start, limit=limit)
        return Snapshot(items, self.revision, remaining)

    async def prepare(self, trigger: Trigger) -> None:
        """Build the index of the trigger's field for :meth:`list`, or wait until it is built."""
        await self._indices.prepare(trigger, self._items)

    def count(self, prefix: str = "") -> int:
        """Count the items under ``prefix`` (default: all)."""
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
        """Yield a watch of ``prefix`` (default: all) or ``key`` after the revision ``after``, possibly a future one.

        ``after``: if a snapshot's revision, without an await in between, the watch misses nothing and cannot expire.
        ``bookmark_seconds``: interval of BOOKMARK events without others. ``trigger``: a condition that ``predicate`` implies;
        makes unrelated changes free.

        Raises Expired, also from the iterator, if changes after ``after`` are gone; TooManyRequests before the first listing,
        or if too many watches read history; ServiceUnavailable.
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
        """Compare with storage; if they differ, have the cache list again, and return False. True also if storage fails."""
        try:
            revision = await self._freshness.wait()
            items, _ = self._items.slice(self._prefix)
            bad = [(each.key, each.revision) for each in self.undecodable.values()]
            revision = self.revision
            differs = await consistency.difference(self._storage, self._prefix, revision, consistency.versions(items, bad))
        except (StorageError, errors.StatusError) as error:
            self.checks["error"] += 1
            logger.info("Cannot compare the watch cache with the storage", extra={"prefix": self._prefix, "error": str(error)})
            return True
        self.checks["failure" if differs else "success"] += 1
        if differs:
            self.is_usable = False
            if self._following is not None:
                self._following.reschedule(asyncio.get_running_loop().time())
            logger.error(
                "The watch cache differs from the storage; reading from the storage until the cache is filled again",
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
            except TimeoutError:
                continue
            except Compacted:
                logger.warning("The storage compacted past the watch cache; listing again", extra={"prefix": self._prefix})
            except StorageError as error:
                logger.warning("The watch cache cannot read the storage; retrying", extra={"prefix": self._prefix, "error": str(error)})
            failures += 1
            await asyncio.sleep(pause_seconds(failures, FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS) * random.uniform(0.5, 1))  # noqa: S311  # no secret

    async def _keep_up(self, revision: int) -> None:
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
        try:
            return self._decode(entry)
        except DECODING_ERRORS:
            return None
