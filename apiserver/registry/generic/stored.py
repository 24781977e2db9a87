"""Read and write one strategy's stored objects, or simulate writes for dry runs (Go: ``storage.Interface``).

While storage does not answer, reads raise ServiceUnavailable.
"""

from __future__ import annotations

from apiserver.apis.meta.errors import NotFound, RequestEntityTooLarge
from apiserver.apis.meta.objects import Object
from apiserver.registry.cacher.items import DECODING_ERRORS, Item
from apiserver.registry.cacher.watchcache import WatchCache
from apiserver.registry.generic import codec, metadata
from apiserver.registry.generic.strategy import Strategy
from apiserver.registry.generic.transactions import LockTaken, Overtaken, Transactions, Unreadable, reading
from storage.port import Entry, Storage


class StoredObjects:
    """The objects of one strategy under ``root`` (``/registry``)."""

    def __init__(self, storage: Storage, cache: WatchCache, strategy: Strategy, root: str) -> None:
        self._storage = storage
        self._cache = cache
        self._hub = strategy.hub
        self._resource = strategy.resource
        self._prefix = codec.collection(root, self._resource)
        self._transactions = Transactions(storage, strategy.hub, root)

    def prefix(self, namespace: str = "") -> str:
        """Return the prefix of the keys of a namespace's objects; without ``namespace``, of all."""
        return f"{self._prefix}{namespace}/" if namespace else self._prefix

    def key(self, namespace: str, name: str) -> str:
        """Return an object's key."""
        return f"{self.prefix(namespace)}{name}"

    def not_found(self, name: str) -> NotFound:
        """Return the error for an absent object."""
        return NotFound(f'{metadata.qualified(self._resource)} "{name}" not found', metadata.details(self._resource, name))

    def decode(self, entry: Entry) -> Item:
        """Return an entry as ``Item``; raises one of DECODING_ERRORS."""
        return codec.decode(self._hub, entry)

    def readable(self, entry: Entry) -> Item:
        """Return an entry as ``Item``, or raise Unreadable."""
        try:
            return self.decode(entry)
        except DECODING_ERRORS as error:
            raise Unreadable(self._resource, entry, error) from error

    def cached(self, namespace: str, name: str) -> Item | None:
        """Return the cached item, which may be stale, or None."""
        return self._cache.get(self.key(namespace, name))

    async def live(self, namespace: str, name: str) -> Item:
        """Return the item in storage; raises NotFound, Unreadable."""
        return self.current(name, await self.read(self.key(namespace, name)))

    def current(self, name: str, entry: Entry | None) -> Item:
        """Return ``entry`` as an item; raises NotFound without one, Unreadable."""
        if entry is None:
            raise self.not_found(name)
        return self.readable(entry)

    async def read(self, key: str) -> Entry | None:
        """Return a key's entry, or None. Raises ServiceUnavailable."""
        with reading(f"read {self._resource.plural}"):
            return await self._storage.get(key)

    async def write(self, key: str, old: Item | None, new: Object, *, dry_run: bool, repeatable: bool) -> Item:
        """Replace ``old`` (None: absent) by ``new``, and return its item; ``new`` loses managed fields if it is too large.

        The stored object also lacks tentative locks that others hold. Raises Overtaken if storage does not have ``old``, LockTaken (a
        Conflict) for other locks, RequestEntityTooLarge, Timeout as :meth:`Transactions.create`.
        """
        if dry_run:
            return await self._as_if(key, old, new)
        hub, writes = self._hub, self._cache.writes
        value = codec.encode(hub, new)
        write = writes.begin(key, value, lambda revision: codec.written(hub, key, revision, new, value))
        try:
            if old is None:
                revision = await self._transactions.create(key, new, value, repeatable=repeatable)
            else:
                revision = await self._transactions.replace(old, new, value, repeatable=repeatable)
        except RequestEntityTooLarge:
            writes.forget(write)
            if new["metadata"].pop("managedFields", None) is None:
                raise
            return await self.write(key, old, new, dry_run=False, repeatable=repeatable)
        except Overtaken:
            writes.forget(write)
            raise
        except LockTaken as taken:
            writes.forget(write)
            return await self.write(key, old, self._yielding(new, taken), dry_run=False, repeatable=repeatable)
        return write.at(revision)

    async def remove(self, item: Item, last: Object, *, dry_run: bool) -> Item:
        """Remove an object and its locks; return ``last``, its last state, at the deletion's revision.

        Raises Overtaken if storage does not have ``item``.
        """
        if dry_run:
            return await self._as_if(item.key, item, last)
        value = codec.encode(self._hub, last)
        return codec.written(self._hub, item.key, await self._transactions.remove(item), last, value)

    async def remove_unread(self, entry: Entry) -> None:
        """Remove an undecodable object; its locks remain. Raises Conflict if it changed."""
        await self._transactions.remove_unread(entry)

    async def _as_if(self, key: str, old: Item | None, new: Object) -> Item:
        if old is None and (entry := await self.read(key)) is not None:
            raise Overtaken(entry)
        try:
            await self._transactions.check_locks(key, old.object if old is not None else None, new)
        except LockTaken as taken:
            return await self._as_if(key, old, self._yielding(new, taken))
        return Item(key, old.revision if old is not None else 0, new, codec.dump(new))

    def _yielding(self, new: Object, taken: LockTaken) -> Object:
        """Return ``new`` without a tentative lock that another object holds; raise the error for other locks."""
        if taken.lock not in self._hub.tentative_locks(new):
            raise taken
        return self._hub.without_lock(new, taken.lock)
