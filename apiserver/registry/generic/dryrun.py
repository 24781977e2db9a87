"""What a resource's objects are written through: guarded by what is stored, or only as if (Go: ``DryRunnableStorage``).

Writes are planned against the cache's copy, which may be behind: whatever that plan leads to except a successful commit is repeated
against storage before it counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from apiserver.apis.meta.errors import NotFound, RequestEntityTooLarge, StatusError
from apiserver.apis.meta.objects import Object
from apiserver.registry.cacher.items import Item
from apiserver.registry.cacher.watchcache import DECODING_ERRORS, WatchCache
from apiserver.registry.generic import codec, metadata
from apiserver.registry.generic.cohorts import Cohort, Cohorts
from apiserver.registry.generic.ownership import keep_times
from apiserver.registry.generic.planning import Plan
from apiserver.registry.generic.strategy import Strategy
from apiserver.registry.generic.transactions import Overtaken, Transactions, Unreadable, reading
from storage.port import Entry, Storage

Planning = Callable[[Item, Cohort], Awaitable[Plan]]
"""Returns what is to become of an object, planned beside the others of a cohort; called again with a newer object."""
_Commit = Callable[[bytes], Awaitable[int]]
"""Stores a value; returns its revision."""


class DryRunnableStorage:
    """The objects of one strategy under ``root`` (``/registry``)."""

    def __init__(self, storage: Storage, cache: WatchCache, strategy: Strategy, root: str) -> None:
        self.cohorts = Cohorts()
        """Of writes that come at the same time: who plans one joins before."""
        self._storage = storage
        self._cache = cache
        self._hub = strategy.hub
        self._resource = strategy.resource
        self._prefix = codec.collection(root, self._resource)
        self._transactions = Transactions(storage, strategy.hub, root)

    def prefix(self, namespace: str = "") -> str:
        """Return the prefix of the keys of a namespace, or of all."""
        return f"{self._prefix}{namespace}/" if namespace else self._prefix

    def key(self, namespace: str, name: str) -> str:
        """Return an object's key."""
        return f"{self.prefix(namespace)}{name}"

    def not_found(self, name: str) -> NotFound:
        """Return the error for an absent object."""
        return NotFound(f'{metadata.qualified(self._resource)} "{name}" not found', metadata.details(self._resource, name))

    async def read(self, key: str) -> Entry | None:
        """Return what storage has under a key.

        Raises:
            ServiceUnavailable: storage cannot be asked.
        """
        with reading(f"read {self._resource.plural}"):
            return await self._storage.get(key)

    async def live(self, namespace: str, name: str) -> Item:
        """Return an object as storage has it.

        Raises:
            NotFound: it is absent.
            Unreadable: it cannot be decoded.
            ServiceUnavailable: storage cannot be asked.
        """
        entry = await self.read(self.key(namespace, name))
        if entry is None:
            raise self.not_found(name)
        return self.readable(entry)

    def decode(self, entry: Entry) -> Item:
        """Return what an entry holds; raises one of DECODING_ERRORS."""
        return codec.decode(self._hub, entry)

    def readable(self, entry: Entry) -> Item:
        """Return what an entry holds.

        Raises:
            Unreadable: it cannot be decoded.
        """
        try:
            return self.decode(entry)
        except DECODING_ERRORS as error:
            raise Unreadable(self._resource, entry, error) from error

    async def create(self, namespace: str, new: Object, cohort: Cohort, *, dry_run: bool, repeatable: bool) -> Item:
        """Store a new object.

        Raises:
            Overtaken: its name is taken.
            Conflict: a claim is.
        """
        key = self.key(namespace, new["metadata"]["name"])
        if dry_run:
            if entry := await self.read(key):
                raise Overtaken(entry)
            await self._transactions.check_claims(key, None, new)
            return Item(key, 0, new, codec.dump(new))
        return await self._stored(key, new, lambda value: self._transactions.create(key, new, value, repeatable=repeatable), cohort)

    async def guaranteed_update(
        self, namespace: str, name: str, plan: Planning, *, dry_run: bool, repeatable: bool
    ) -> tuple[Item, bool]:  # fmt: skip
        """Plan and commit until nobody interferes; return the object and whether it was removed.

        Terminates because each further round sees a commit of somebody else.

        Raises:
            NotFound, and what ``plan`` raises about the object as it is stored.
            Conflict: a claim is taken.
        """
        cohort = await self.cohorts.join()
        item = self._cache.get(self.key(namespace, name))
        certain = item is None
        if item is None:
            item = await self.live(namespace, name)
        while True:
            planned = await self._planned(plan, item, cohort)
            settled = False
            if isinstance(planned, Plan) and not planned.remove:
                old = item.object
                keep_times(planned.obj, old)
                settled = not item.stale and planned.obj == old
            if not isinstance(planned, StatusError) and not settled and not dry_run:
                try:
                    return await self._commit(item, planned, cohort, repeatable=repeatable)
                except Overtaken as overtaken:
                    if overtaken.current is None:
                        raise self.not_found(name) from None
                    item, certain = self.readable(overtaken.current), True
                    continue
            if not certain:
                live = await self.live(namespace, name)
                certain = True
                if (live.revision, live.stale) != (item.revision, item.stale):
                    item = live
                    continue  # nobody is asked twice about the same state
            if isinstance(planned, StatusError):
                raise planned
            if settled:
                return item, False
            await self._transactions.check_claims(item.key, item.object, planned.obj)
            return Item(item.key, item.revision, planned.obj, codec.dump(planned.obj)), planned.remove

    async def remove_unread(self, entry: Entry) -> None:
        """Remove what cannot be decoded; claims that it may hold are left.

        Raises:
            Conflict: somebody wrote since.
        """
        await self._transactions.remove_unread(entry)

    @staticmethod
    async def _planned(plan: Planning, item: Item, cohort: Cohort) -> Plan | StatusError:
        """Return the plan, or why there is none, which counts once the object is known not to be behind."""
        try:
            return await plan(item, cohort)
        except StatusError as refused:
            return refused

    async def _commit(self, item: Item, planned: Plan, cohort: Cohort, *, repeatable: bool) -> tuple[Item, bool]:
        obj = planned.obj
        if planned.remove:
            value = codec.encode(self._hub, obj)
            return codec.written(self._hub, item.key, await self._transactions.remove(item), obj, value), True
        commit: _Commit = lambda value: self._transactions.replace(item, obj, value, repeatable=repeatable)  # noqa: E731 - as short as it is
        return await self._stored(item.key, obj, commit, cohort), False

    async def _stored(self, key: str, obj: Object, commit: _Commit, cohort: Cohort) -> Item:
        """Commit an object, at worst without its managed fields: it may be too large with them."""
        hub, writes = self._hub, self._cache.writes
        await cohort.stage()
        value = codec.encode(hub, obj)
        await cohort.stage()
        write = writes.begin(key, value, lambda revision: codec.written(hub, key, revision, obj, value))
        try:
            item = write.at(await commit(value))
        except RequestEntityTooLarge:
            writes.forget(write)
            if obj["metadata"].pop("managedFields", None) is None:
                raise
            return await self._stored(key, obj, commit, cohort)
        except Overtaken:
            writes.forget(write)
            raise
        await cohort.stage()  # storage answers many at once
        return item
