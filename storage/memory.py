"""The storage port in memory, with history, but without durability.

Calls yield to the event loop first, so callers cannot depend on an order that a real store lacks.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import assert_never

from storage.port import (
    Batch,
    Change,
    Compacted,
    Condition,
    Delete,
    Entry,
    FutureRevision,
    Page,
    Put,
    RevisionMismatch,
    TooLarge,
    Unavailable,
)

# etcd's defaults (--max-request-bytes, --max-txn-ops), so both accept the same commits.
MAX_COMMIT_BYTES = 1536 * 1024
MAX_COMMIT_WRITES = 128


@dataclass(frozen=True, slots=True)
class _Version:
    revision: int
    entry: Entry | None


@dataclass(slots=True, eq=False)
class _Watch:
    prefix: str
    position: int
    """Every change up to it was yielded, or is elsewhere."""
    previous: bool
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    wants_progress: bool = False

    def as_seen(self, change: Change) -> Change:
        return change if self.previous else Change(change.key, change.entry, None)


_revision_of = attrgetter("revision")


class MemoryStorage:
    """A ``storage.port.Storage`` in memory."""

    def __init__(self, *, keep_revisions: int = 0) -> None:
        """``keep_revisions``: compact automatically to about this many revisions; 0: never."""
        self._keep_revisions = keep_revisions
        self._revision = 1  # as in a new etcd
        self._compacted = 0
        self._keys: list[str] = []  # sorted; every key with history
        self._history: dict[str, list[_Version]] = {}
        self._log: list[Batch] = []  # one batch per revision above _compacted
        self._watches: set[_Watch] = set()
        self._closed = False

    async def get(self, key: str) -> Entry | None:
        """Return the entry of ``key``, or None."""
        await self._turn()
        return self._latest(key)

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        """Return a page as ``Storage.range``."""
        await self._turn()
        if revision > self._revision:
            raise FutureRevision(f"revision {revision} is not reached; the store is at {self._revision}")
        at = revision or self._revision
        if at < self._compacted:
            raise Compacted(self._compacted)
        found: list[Entry] = []
        for index in range(bisect_left(self._keys, max(prefix, start)), len(self._keys)):
            key = self._keys[index]
            if not key.startswith(prefix):
                break
            if entry := self._entry_at(key, at):
                found.append(entry)
        entries = tuple(found[:limit] if limit else found)
        return Page(entries, at, more=len(entries) < len(found), count=len(found))

    def _first(self, start: str, end: str) -> Entry | None:
        keys = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]
        return next((entry for key in keys if (entry := self._latest(key))), None)

    async def commit(self, conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
        """Apply ``writes`` as ``Storage.commit``; return the new revision."""
        check_size(writes)
        await self._turn()
        for condition in conditions:
            entry = self._first(condition.key, condition.end) if condition.end else self._latest(condition.key)
            if (entry.mod_revision if entry else 0) != condition.mod_revision:
                raise RevisionMismatch(condition.key, entry)
        revision = self._revision + 1
        changes = [change for write in writes if (change := self._change(write, revision))]
        if changes:
            self._apply(Batch(revision, tuple(changes)))
        return self._revision

    @asynccontextmanager
    async def watch(self, prefix: str, *, after: int, previous: bool = True) -> AsyncIterator[AsyncIterator[Batch]]:
        """Watch as ``Storage.watch``."""
        watch = _Watch(prefix, after, previous)
        batches = self._follow(watch)
        self._watches.add(watch)
        try:
            yield batches
        finally:
            self._watches.discard(watch)
            await batches.aclose()

    async def request_progress(self) -> None:
        """Make every watch yield a batch soon."""
        await self._turn()
        for watch in self._watches:
            watch.wants_progress = True
            watch.woken.set()

    async def revision(self) -> int:
        """Return the store's revision."""
        await self._turn()
        return self._revision

    async def compact(self, revision: int) -> None:
        """Drop history below ``revision``."""
        await self._turn()
        if revision > self._revision:
            raise FutureRevision(f"compact to revision {revision}: the store is at {self._revision}")
        if revision > self._compacted:
            self._compact(revision)

    async def close(self) -> None:
        """End watches with Unavailable, which all later calls raise."""
        self._closed = True
        for watch in self._watches:
            watch.woken.set()

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the store is closed")

    def _latest(self, key: str) -> Entry | None:
        versions = self._history.get(key)
        return versions[-1].entry if versions else None

    def _entry_at(self, key: str, revision: int) -> Entry | None:
        versions = self._history[key]
        index = bisect_right(versions, revision, key=_revision_of)
        return versions[index - 1].entry if index else None

    def _change(self, write: Put | Delete, revision: int) -> Change | None:
        previous = self._latest(write.key)
        match write:
            case Put():
                created = previous.create_revision if previous else revision
                return Change(write.key, Entry(write.key, write.value, created, revision), previous)
            case Delete():
                return Change(write.key, None, previous) if previous else None
            case _:
                assert_never(write)

    def _apply(self, batch: Batch) -> None:
        for change in batch.changes:
            if change.key not in self._history:
                insort(self._keys, change.key)
                self._history[change.key] = []
            self._history[change.key].append(_Version(batch.revision, change.entry))
        self._log.append(batch)
        self._revision = batch.revision
        for watch in self._watches:
            watch.woken.set()
        if 0 < 2 * self._keep_revisions < len(self._log):  # in bulk, because each compaction visits every key
            self._compact(self._revision - self._keep_revisions)

    def _compact(self, revision: int) -> None:
        for watch in self._watches:  # those that need nothing older
            if self._compacted <= watch.position < revision and not self._changes(watch, upto=revision):
                watch.position = revision
            watch.woken.set()
        self._compacted = revision
        del self._log[: bisect_right(self._log, revision, key=_revision_of)]
        for key in list(self._keys):
            self._forget(key)

    def _forget(self, key: str) -> None:
        versions = self._history[key]
        index = bisect_right(versions, self._compacted, key=_revision_of)
        keep = versions[max(index - 1, 0) :]
        if keep[0].entry is None and keep[0].revision <= self._compacted:
            keep = keep[1:]
        if keep:
            self._history[key] = keep
        else:
            del self._history[key]
            del self._keys[bisect_left(self._keys, key)]

    def _changes(self, watch: _Watch, *, upto: int) -> list[Batch]:
        found = []
        for index in range(bisect_right(self._log, watch.position, key=_revision_of), len(self._log)):
            batch = self._log[index]
            if batch.revision > upto:
                break
            if changes := tuple(watch.as_seen(change) for change in batch.changes if change.key.startswith(watch.prefix)):
                found.append(Batch(batch.revision, changes))
        return found

    async def _follow(self, watch: _Watch) -> AsyncGenerator[Batch, None]:
        while True:
            self._check_open()
            if watch.position < self._compacted:
                raise Compacted(self._compacted)
            watch.woken.clear()
            upto = self._revision
            asked, watch.wants_progress = watch.wants_progress, False  # later requests need a later revision
            for batch in self._changes(watch, upto=upto):
                watch.position = batch.revision
                yield batch
            watch.position = max(watch.position, upto)
            if asked:
                yield Batch(watch.position, ())
            await self._until_woken(watch)

    async def _until_woken(self, watch: _Watch) -> None:
        await watch.woken.wait()


def check_size(writes: Sequence[Put | Delete]) -> None:
    """Raise etcd's errors for a commit beyond its default limits: TooLarge, or ValueError for a key that is in ``writes`` twice."""
    if len(writes) > MAX_COMMIT_WRITES:
        raise TooLarge(f"a commit of {len(writes)} writes is larger than the {MAX_COMMIT_WRITES} that the store takes")
    size = sum(len(write.key) + (len(write.value) if isinstance(write, Put) else 0) for write in writes)
    if size > MAX_COMMIT_BYTES:
        raise TooLarge(f"a commit of {size} bytes is larger than the {MAX_COMMIT_BYTES} that the store takes")
    if len({write.key for write in writes}) < len(writes):
        raise ValueError("a key occurs twice in the writes of one commit")
