"""Transactions of an object and its locks, guarded by revisions. Storage errors become API errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterator
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
    """Another object holds a lock; ``why`` is the reason without the refused object's name."""

    def __init__(self, resource: Resource, name: str, why: str) -> None:
        refusal = metadata.conflict(resource, name, why)
        super().__init__(refusal.message, refusal.details)
        self.why = why


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
    """Log a storage outage; clients must not see its addresses."""
    logger.warning("The storage did not respond", extra={"doing": what, "error": str(error)})


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
        """Store a new object as ``value``; return its revision. Raises Overtaken if the key exists, Conflict for a taken lock.

        Raises Timeout without an answer: the object may be stored. ``repeatable``: the client may then repeat the request.
        """
        return self._commit(key, 0, (obj, value), NOTHING, obj, repeatable=repeatable)

    def replace(self, item: Item, new: Object, value: bytes, *, repeatable: bool) -> Awaitable[int]:
        """Replace ``item`` by ``new``, encoded as ``value``; return the revision. Raises as :meth:`create`."""
        return self._commit(item.key, item.revision, (new, value), self._locks(item.object), new, repeatable=repeatable)

    def remove(self, item: Item) -> Awaitable[int]:
        """Remove an object and its locks; return the revision. Raises Overtaken."""
        return self._commit(item.key, item.revision, None, self._locks(item.object), item.object, repeatable=True)

    async def remove_unread(self, entry: Entry) -> None:
        """Remove an undecodable object; its locks remain. Raises Conflict if it changed."""
        try:
            with reading("deleting an object that cannot be decoded"):
                await self._storage.commit([Condition(entry.key, entry.mod_revision)], [Delete(entry.key)])
        except RevisionMismatch as mismatch:
            raise Conflict(f"{entry.key} was written at the same time; read it again") from mismatch

    async def check_locks(self, key: str, old: Object | None, new: Object) -> None:
        """Raise Conflict if a lock that ``new`` needs is taken, for a dry run."""
        held = self._locks(old) if old is not None else NOTHING
        for lock in sorted(self._locks(new) - held):
            for condition in self._conditions(lock):
                with reading("read a lock"):
                    found = await self._first(condition)
                if found is not None and found.value.decode() != key and await self._unused(found) is None:
                    raise await self._taken(new, lock[0], found, is_new=old is None)

    async def _commit(
        self, key: str, revision: int, new: tuple[Object, bytes] | None, held: Locks, about: Object, *, repeatable: bool
    ) -> int:  # fmt: skip
        wanted = self._locks(new[0]) if new is not None else NOTHING
        ours: set[str] = set()  # in storage, although not the strategy's
        missing = await self._lacking(key, held)
        lacking, given_up = missing & wanted, held - wanted - missing  # a missing lock may be another object's: never release it
        has_all = True
        self._complete.pop(key, None)
        while True:
            gained = {each: lock for lock in (wanted - held) | lacking for each in self._conditions(lock) if each.key not in ours}
            writes: list[Put | Delete] = [Put(key, new[1]) if new is not None else Delete(key)]
            writes += [Put(self._key_of(lock, key), key.encode()) for lock in (wanted - held) | lacking]
            writes += [Delete(self._key_of(lock, key)) for lock in given_up]
            try:
                written = await self._storage.commit([Condition(key, revision), *gained], writes)
            except RevisionMismatch as mismatch:
                if mismatch.key == key:
                    raise Overtaken(mismatch.actual) from None
                if mismatch.actual is None:
                    continue
                if mismatch.actual.key == mismatch.key and mismatch.actual.value.decode(errors="replace") == key:
                    ours.add(mismatch.key)
                elif not await self._clear(mismatch.actual):
                    lock = next(lock for condition, lock in gained.items() if condition.key == mismatch.key)
                    if lock not in lacking:
                        raise await self._taken(about, lock[0], mismatch.actual, is_new=not revision) from None
                    logger.warning(
                        "Another object holds a lock that an object from before an upgrade uses", extra={"object": key, "lock": lock[0]}
                    )
                    lacking, has_all = lacking - {lock}, False
            except TooLarge as error:
                raise RequestEntityTooLarge(f"{self._name(about)} is too large for storage: {error}") from error
            except Unavailable as error:
                doing = f"write {self._name(about)}"
                unanswered(doing, error)
                raise Timeout(
                    f"{doing}: the storage did not respond; the write may have succeeded", _RETRY if repeatable else Details()
                ) from error
            else:
                if wanted and has_all:
                    self._remember_complete(key)
                return written

    async def _lacking(self, key: str, held: Locks) -> Locks:
        """Return an object's locks that storage lacks since an older version wrote it; checked once."""
        if not held or key in self._complete:
            return NOTHING
        with reading("read the locks of an object"):
            stored = {lock: await self._storage.get(self._key_of(lock, key)) for lock in held}
        return frozenset(lock for lock, entry in stored.items() if entry is None or entry.value.decode(errors="replace") != key)

    def _remember_complete(self, key: str) -> None:
        self._complete[key] = None
        if len(self._complete) > self._max_complete:
            del self._complete[next(iter(self._complete))]

    def _locks(self, obj: Object) -> Locks:
        return frozenset((lock, ALONE) for lock in self._strategy.locks(obj)) | self._strategy.shared_locks(obj)

    def _conditions(self, lock: tuple[str, str]) -> list[Condition]:
        key, group = self._lock_key(lock[0]), lock[1]
        if group == ALONE:
            return [Condition(key, 0), Condition(f"{key}/", 0, end=f"{key}0")]  # in ASCII, 0 follows /
        return [Condition(key, 0), Condition(f"{key}/", 0, end=f"{key}/{group}/"), Condition(f"{key}/{group}0", 0, end=f"{key}0")]

    def _key_of(self, lock: tuple[str, str], holder: str) -> str:
        key, group = self._lock_key(lock[0]), lock[1]
        return key if group == ALONE else f"{key}/{group}/{_name_in(holder)}"

    async def _first(self, condition: Condition) -> Entry | None:
        if not condition.end:
            return await self._storage.get(condition.key)
        page = await self._storage.range(condition.key.rpartition("/")[0] + "/", start=condition.key, limit=1)
        return page.entries[0] if page.entries and page.entries[0].key < condition.end else None

    async def _unused(self, entry: Entry) -> Condition | None:
        """Return the ``Condition`` under which a lock's holder does not need it; None if the holder needs it, or is unreadable."""
        holder = entry.value.decode(errors="replace")
        try:
            stored = await self._storage.get(holder)
            held = self._locks(codec.decode(self._strategy, stored).object) if stored is not None else NOTHING
        except (Unavailable, *DECODING_ERRORS):
            return None
        if any(self._key_of(each, holder) == entry.key for each in held):
            return None
        return Condition(holder, stored.mod_revision if stored is not None else 0)

    async def _clear(self, entry: Entry) -> bool:
        if (unused := await self._unused(entry)) is None:
            return False
        try:
            await self._storage.commit([Condition(entry.key, entry.mod_revision), unused], [Delete(entry.key)])
        except (RevisionMismatch, Unavailable):
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
        return LockTaken(self._strategy.resource, name or name_of(obj), why)

    async def _find(self, key: str) -> Object | None:
        try:
            entry = await self._storage.get(key)
            return codec.decode(self._strategy, entry).object if entry is not None else None
        except (Unavailable, *DECODING_ERRORS):
            return None


def _name_in(key: str) -> str:
    return "/".join(key.split("/")[-2:])
