"""Transactions of an object and its locks, guarded by revisions. Storage errors become API errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from apiserver.apis.meta.errors import Conflict, Details, InternalError, RequestEntityTooLarge, ServiceUnavailable, Timeout
from apiserver.apis.meta.objects import Object, name_of, namespace_of
from apiserver.apis.meta.resources import Resource
from apiserver.registry.cacher.items import DECODING_ERRORS, Item
from apiserver.registry.generic import codec, metadata
from apiserver.registry.generic.codec import lock_key
from apiserver.registry.generic.strategy import Strategy
from storage.port import Condition, Delete, Entry, Put, RevisionMismatch, Storage, TooLarge, Unavailable

logger = logging.getLogger(__name__)

_RETRY: Final = Details(retry_after_seconds=1)
MAX_COMPLETE: Final = 16_384
"""The next write checks others."""
ALONE: Final = ""
"""Instead of a group, for an exclusive lock."""
Locks: TypeAlias = frozenset[tuple[str, str]]
"""Pairs of lock and group."""
NOTHING: Final[Locks] = frozenset()


class LockTaken(Conflict):
    """Another object holds ``lock``; ``why`` is the reason without the refused object's name."""

    def __init__(self, resource: Resource, name: str, why: str, lock: str) -> None:
        refusal = metadata.conflict(resource, name, why)
        super().__init__(refusal.message, refusal.details)
        self.why = why
        self.lock = lock


@dataclass(eq=False)
class Overtaken(Exception):
    """Another writer was first; ``current`` is the present entry, None if removed."""

    current: Entry | None


class Unreadable(InternalError):
    """A stored object cannot be decoded; administrators restore it in storage, or delete it unread."""

    def __init__(self, resource: Resource, entry: Entry, error: Exception) -> None:
        name = entry.key.rpartition("/")[2]
        why = f"cannot be decoded: {type(error).__name__}: {str(error)[:256]}"
        what = (
            "restore it in the storage, or delete it with ignoreStoreReadErrorWithClusterBreakingPotential=true, which ignores finalizers"
        )
        super().__init__(f'{metadata.qualified(resource)} "{name}" is stored, but {why}; {what}', metadata.details(resource, name))
        self.entry = entry


@contextmanager
def reading(what: str) -> Iterator[None]:
    """During the block, turn a storage outage into ServiceUnavailable."""
    try:
        yield
    except Unavailable as error:
        unanswered(what, error)
        raise ServiceUnavailable(f"{what}: storage is not available", _RETRY) from error


def unanswered(what: str, error: Exception) -> None:
    """Log that storage did not answer ``what``. Clients must not see the error, which may contain addresses."""
    logger.warning("etcd did not respond", extra={"doing": what, "error": str(error)})


class Transactions:
    """Commits objects of one strategy under ``root``."""

    def __init__(self, storage: Storage, strategy: Strategy, root: str, max_complete: int = MAX_COMPLETE) -> None:
        self._storage = storage
        self._strategy = strategy
        self._root = root
        self._max_complete = max_complete
        # Keys with complete locks in storage.
        self._complete: dict[str, None] = {}

    def create(self, key: str, obj: Object, value: bytes, *, repeatable: bool) -> Awaitable[int]:
        """Store a new object as ``value``; return its revision. Raises Overtaken if the key exists, LockTaken, RequestEntityTooLarge.

        Raises Timeout without an answer: the object may be stored. ``repeatable``: the client may then repeat the request.
        """
        return self._commit(key, 0, None, obj, value, repeatable=repeatable)

    def replace(self, item: Item, new: Object, value: bytes, *, repeatable: bool) -> Awaitable[int]:
        """Replace ``item`` by ``new``, encoded as ``value``; return the revision. Raises as :meth:`create`."""
        return self._commit(item.key, item.revision, item.object, new, value, repeatable=repeatable)

    def remove(self, item: Item) -> Awaitable[int]:
        """Remove an object and its locks; return the revision.

        Raises Overtaken if another writer was first. Without an answer: Timeout (it may be removed), or ServiceUnavailable (it is not).
        """
        return self._commit(item.key, item.revision, item.object, None, None, repeatable=True)

    async def remove_unread(self, entry: Entry) -> None:
        """Remove an undecodable object; its locks remain. Raises Conflict if it changed."""
        try:
            with reading("deleting an object that cannot be decoded"):
                await self._storage.commit([Condition(entry.key, entry.mod_revision)], [Delete(entry.key)])
        except RevisionMismatch as mismatch:
            raise Conflict(f"{entry.key} was written at the same time; read it again") from mismatch

    async def check_locks(self, key: str, old: Object | None, new: Object) -> None:
        """For a dry run, raise LockTaken if an object has a lock that ``new`` wants, and would keep it."""
        held, tentative = self._locks(old) if old is not None else NOTHING, self._tentative(new)
        for lock in sorted(self._locks(new) - held):
            for condition in self._conditions(lock):
                with reading("read a lock"):
                    found = await self._first(condition)
                if found is None or found.value.decode() == key:
                    continue
                if await self._given_up(found, is_needed=lock not in tentative) is None:
                    raise await self._taken(new, lock[0], found, is_new=old is None)

    async def _commit(
        self, key: str, revision: int, old: Object | None, new: Object | None, value: bytes | None, *, repeatable: bool
    ) -> int:  # fmt: skip
        about = new or old or {}
        wanted, tentative = self._both(new)
        held, unsure = self._both(old)
        ours: dict[str, Condition] = {}  # in storage, although not the strategy's
        kept = await self._kept(key, unsure - tentative)
        missing = await self._lacking(key, held)
        held -= (unsure - tentative).difference(kept)
        lacking, given_up = missing & wanted & held, held - wanted - missing  # a missing lock may be another object's: never release it
        has_all = True
        self._complete.pop(key, None)
        while True:
            taken = (wanted - held) | lacking
            gained = {each: lock for each, lock in self._free(taken) if each.key not in ours}
            writes = self._writes(key, value, taken, given_up)
            try:
                written = await self._storage.commit([Condition(key, revision), *kept.values(), *ours.values(), *gained], writes)
            except RevisionMismatch as mismatch:
                if mismatch.key == key or _fails(mismatch, kept.values()):
                    raise Overtaken(mismatch.actual if mismatch.key == key else await self._read(key)) from None
                if ours.pop(mismatch.key, None) is not None or mismatch.actual is None:
                    continue
                if mismatch.actual.key == mismatch.key and mismatch.actual.value.decode(errors="replace") == key:
                    ours[mismatch.key] = Condition(mismatch.key, mismatch.actual.mod_revision)
                    continue
                lock = {condition.key: lock for condition, lock in gained.items()}[mismatch.key]
                if not await self._clear(mismatch.actual, is_needed=lock not in tentative):
                    if lock not in lacking:
                        raise await self._taken(about, lock[0], mismatch.actual, is_new=not revision) from None
                    logger.warning(
                        "Another object holds a lock of an object that an older version wrote; writing this object without the lock",
                        extra={"object": key, "lock": lock[0]},
                    )
                    lacking, has_all = lacking - {lock}, False
            except TooLarge as error:
                raise RequestEntityTooLarge(f"{self._name(about)} is too large for storage: {error}") from error
            except Unavailable as error:
                doing = f"write {self._name(about)}"
                unanswered(doing, error)
                raise Timeout(
                    f"{doing}: etcd did not respond; the write may have succeeded", _RETRY if repeatable else Details()
                ) from error
            else:
                if wanted and has_all:
                    self._remember_complete(key)
                return written

    def _writes(self, key: str, value: bytes | None, taken: Locks, given_up: Locks) -> list[Put | Delete]:
        first = Put(key, value) if value is not None else Delete(key)
        puts = (Put(self._key_of(lock, key), key.encode()) for lock in taken)
        return [first, *puts, *(Delete(self._key_of(lock, key)) for lock in given_up)]

    async def _lacking(self, key: str, held: Locks) -> Locks:
        """Return an object's locks that storage lacks since an older version wrote it; checked once."""
        return NOTHING if key in self._complete else held.difference(await self._kept(key, held))

    async def _kept(self, key: str, locks: Locks) -> dict[tuple[str, str], Condition]:
        """Return the locks that an object has in storage, each with the condition that it stays so."""
        stored = {lock: await self._read(self._key_of(lock, key)) for lock in locks}
        there = {lock: entry for lock, entry in stored.items() if entry is not None and entry.value.decode(errors="replace") == key}
        return {lock: Condition(entry.key, entry.mod_revision) for lock, entry in there.items()}

    async def _read(self, key: str) -> Entry | None:
        with reading("read the locks of an object"):
            return await self._storage.get(key)

    def _remember_complete(self, key: str) -> None:
        self._complete[key] = None
        if len(self._complete) > self._max_complete:
            del self._complete[next(iter(self._complete))]

    def _locks(self, obj: Object) -> Locks:
        return frozenset((lock, ALONE) for lock in self._strategy.locks(obj)) | self._strategy.shared_locks(obj)

    def _both(self, obj: Object | None) -> tuple[Locks, Locks]:
        return (self._locks(obj), self._tentative(obj)) if obj is not None else (NOTHING, NOTHING)

    def _tentative(self, obj: Object) -> Locks:
        found = self._strategy.tentative_locks(obj)
        return frozenset(each for each in self._locks(obj) if each[0] in found) if found else NOTHING

    def _conditions(self, lock: tuple[str, str]) -> list[Condition]:
        key, group = self._lock_key(lock[0]), lock[1]
        if group == ALONE:
            return [Condition(key, 0), Condition(f"{key}/", 0, end=f"{key}0")]  # in ASCII, 0 follows /
        return [Condition(key, 0), Condition(f"{key}/", 0, end=f"{key}/{group}/"), Condition(f"{key}/{group}0", 0, end=f"{key}0")]

    def _free(self, locks: Locks) -> Iterator[tuple[Condition, tuple[str, str]]]:
        return ((condition, lock) for lock in locks for condition in self._conditions(lock))

    def _key_of(self, lock: tuple[str, str], holder: str) -> str:
        key, group = self._lock_key(lock[0]), lock[1]
        return key if group == ALONE else f"{key}/{group}/{_name_in(holder)}"

    async def _first(self, condition: Condition) -> Entry | None:
        if not condition.end:
            return await self._storage.get(condition.key)
        page = await self._storage.range(condition.key.rpartition("/")[0] + "/", start=condition.key, limit=1)
        return page.entries[0] if page.entries and page.entries[0].key < condition.end else None

    async def _given_up(self, entry: Entry, *, is_needed: bool) -> tuple[Condition, list[Put]] | None:
        """Return condition and writes with which a lock's holder goes without it; None if it keeps the lock, or is unreadable.

        ``is_needed``: another object needs the lock, so a tentative holder gives it up.
        """
        holder = entry.value.decode(errors="replace")
        try:
            stored = await self._storage.get(holder)
            obj = codec.decode(self._strategy, stored).object if stored is not None else None
            held, tentative = self._both(obj)
        except (Unavailable, *DECODING_ERRORS):
            return None
        condition = Condition(holder, stored.mod_revision if stored is not None else 0)
        lock = next((each for each in held if self._key_of(each, holder) == entry.key), None)
        if obj is None or lock is None:
            return condition, []
        if not is_needed or lock not in tentative:
            return None
        return condition, [Put(holder, codec.encode(self._strategy, self._strategy.without_lock(obj, lock[0])))]

    async def _clear(self, entry: Entry, *, is_needed: bool) -> bool:
        """Delete a lock that its holder gives up; return whether to try again: it is gone, or its tentative holder changed meanwhile."""
        if (given_up := await self._given_up(entry, is_needed=is_needed)) is None:
            return False
        conditions, writes = [Condition(entry.key, entry.mod_revision), given_up[0]], given_up[1]
        try:
            try:
                await self._storage.commit(conditions, [*writes, Delete(entry.key)])
            except TooLarge:  # with another encoding, or the lock's key; a tentative holder notices that the lock is gone
                await self._storage.commit(conditions, [Delete(entry.key)])
        except RevisionMismatch:
            return bool(writes)
        except Unavailable:
            return False
        return True

    def _lock_key(self, lock: str) -> str:
        return lock_key(self._root, self._strategy.resource, lock)

    def _name(self, obj: Object) -> str:
        return f'{metadata.qualified(self._strategy.resource)} "{name_of(obj)}" in namespace "{namespace_of(obj)}"'

    async def _taken(self, obj: Object, lock: str, holder: Entry, *, is_new: bool) -> LockTaken:
        key = holder.value.decode(errors="replace")
        why = self._strategy.lock_taken(obj, lock, _name_in(key), await self._find(key))
        name = is_new and obj["metadata"].get("generateName")
        return LockTaken(self._strategy.resource, name or name_of(obj), why, lock)

    async def _find(self, key: str) -> Object | None:
        try:
            entry = await self._storage.get(key)
            return codec.decode(self._strategy, entry).object if entry is not None else None
        except (Unavailable, *DECODING_ERRORS):
            return None


def _fails(mismatch: RevisionMismatch, conditions: Iterable[Condition]) -> bool:
    found = mismatch.actual.mod_revision if mismatch.actual is not None else None
    return any(each.key == mismatch.key and each.mod_revision != found for each in conditions)


def _name_in(key: str) -> str:
    return "/".join(key.split("/")[-2:])
