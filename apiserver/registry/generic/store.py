"""One resource: create, get, update, act, delete over storage and its watch cache, as ``registry/generic/registry/store.go`` does it.

Reads come from the watch cache, after a linearizable look at the revision that it must have reached. Writes are planned against the
cache's copy, which may be behind: whatever that plan leads to except a successful commit is repeated against storage before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from apiserver.apis.meta import names
from apiserver.apis.meta.errors import AlreadyExists, BadRequest, NotFound, StatusError
from apiserver.apis.meta.objects import Object, is_deleting, uid_of
from apiserver.registry.generic import codec, metadata
from apiserver.registry.generic.admission import Admission
from apiserver.registry.generic.options import DeleteOptions, WriteOptions
from apiserver.registry.generic.planning import Part, Plan, Planner
from apiserver.registry.generic.strategy import Strategy, Verb
from apiserver.registry.generic.transactions import Overtaken, Transactions, reading
from apiserver.registry.generic.watchcache import Item, WatchCache
from storage.port import Entry, Storage

GENERATED_NAMES = 8
"""How many random names are tried for a generateName."""

Change = Callable[[Object], Object]
"""Turns a copy of the stored object into what the client wants; called again with a newer one."""


class Store:
    """The objects of one strategy under ``root`` (``/registry``)."""

    def __init__(
        self, storage: Storage, cache: WatchCache, strategy: Strategy, *, root: str, admission: Admission, now: Callable[[], datetime]
    ) -> None:
        self.strategy = strategy
        self.resource = strategy.resource
        self.cache = cache
        self.storage = storage
        self._prefix = codec.collection(root, self.resource)
        self._admission = admission
        self._now = now
        self._planner = Planner(strategy)
        self._transactions = Transactions(storage, strategy, root)

    def prefix(self, namespace: str = "") -> str:
        """Return the prefix of the keys of a namespace, or of all."""
        return f"{self._prefix}{namespace}/" if namespace else self._prefix

    def key(self, namespace: str, name: str) -> str:
        """Return an object's key."""
        return f"{self.prefix(namespace)}{name}"

    def decode(self, entry: Entry) -> Item:
        """Return what an entry of storage holds."""
        return codec.decode(self.strategy, entry)

    def not_found(self, name: str) -> NotFound:
        """Return the error for an absent object."""
        return NotFound(f'{metadata.qualified(self.resource)} "{name}" not found', metadata.details(self.resource, name))

    async def get(self, namespace: str, name: str, *, fresh: bool = True, at_least: int = 0) -> Item:
        """Return one object: as of now (``fresh``), else of a revision not older than ``at_least``.

        Raises:
            NotFound: it is absent.
            Timeout: the revision does not exist yet.
            ServiceUnavailable: storage cannot be asked.
        """
        await self.cache.wait_fresh(None if fresh else at_least)
        item = self.cache.get(self.key(namespace, name))
        if item is None:
            raise self.not_found(name)
        return item

    async def create(self, namespace: str, obj: Object, options: WriteOptions) -> Object:
        """Store a new object and return it.

        Raises:
            BadRequest, Invalid: it is wrong.
            NotFound, Forbidden: its namespace is absent, or goes.
            AlreadyExists, Conflict: its name, or a claim, is taken.
        """
        metadata.match_request(obj, self.resource, namespace)
        refused = self._planner.read(obj, options)
        given = obj["metadata"]
        if given.get("resourceVersion"):
            raise BadRequest("resourceVersion should not be set on objects to be created")
        await self._admission.create(self.resource, namespace, given.get("name", ""))
        base = given.get("generateName") if not given.get("name") else None
        for _ in range(GENERATED_NAMES if base else 1):
            if base:
                given["name"] = names.generate(base)
            new = self._planner.create(codec.copy(obj), refused, self._now())
            try:
                # Another try would take another name: whoever hears of no result must look first.
                return await self._create(namespace, new, options, repeatable=not base)
            except Overtaken as overtaken:
                if not base:
                    raise self._exists(new, overtaken.current) from None
        message = f'{metadata.qualified(self.resource)} "{given["name"]}" already exists, the server was not able to generate a unique name'
        raise AlreadyExists(message, metadata.details(self.resource, given["name"], retry_after_seconds=1))

    async def _create(self, namespace: str, new: Object, options: WriteOptions, *, repeatable: bool) -> Object:
        key = self.key(namespace, new["metadata"]["name"])
        if options.dry_run:
            if entry := await self._read(key):
                raise Overtaken(entry)
            await self._transactions.check_claims(key, None, new)
            return new
        return codec.at_revision(new, await self._transactions.create(key, new, repeatable=repeatable))

    def _exists(self, new: Object, current: Entry | None) -> AlreadyExists:
        name = new["metadata"]["name"]
        prefix = "object is being deleted: " if current is not None and is_deleting(self.decode(current).object) else ""
        return AlreadyExists(
            f'{prefix}{metadata.qualified(self.resource)} "{name}" already exists', metadata.details(self.resource, name)
        )  # fmt: skip

    async def update(
        self, namespace: str, name: str, change: Change, options: WriteOptions, *, part: Part = "", repeatable: bool = True
    ) -> Object:
        """Change an object, or its status, and return it; a change that changes nothing is not written.

        ``repeatable``: applied to its own result, ``change`` changes nothing more.

        Raises:
            NotFound, Conflict, BadRequest, Invalid, and what ``change`` raises.
        """

        def plan(old: Object) -> Plan:
            return self._planner.update(change(codec.copy(old)), old, options, part)

        obj, _ = await self._guarded(namespace, name, plan, dry_run=options.dry_run, repeatable=repeatable)
        return obj

    async def act(self, namespace: str, name: str, verb: Verb, body: Object, options: WriteOptions) -> Object:
        """Apply a verb to an object and return it as it became.

        Raises:
            NotFound, and what the verb raises.
        """

        def plan(old: Object) -> Plan:
            return self._planner.act(verb, body, old, self._now())

        obj, _ = await self._guarded(namespace, name, plan, dry_run=options.dry_run, repeatable=False)
        return obj

    async def delete(self, namespace: str, name: str, options: DeleteOptions) -> tuple[Object, bool]:
        """Delete an object, or mark it if finalizers hold it; return its last state and whether it is gone.

        Raises:
            NotFound, Conflict: absent; a precondition does not hold.
        """

        def plan(old: Object) -> Plan:
            return self._planner.delete(old, options, self._now())

        return await self._guarded(namespace, name, plan, dry_run=options.dry_run, repeatable=True)

    async def delete_each(self, items: Iterable[Item], options: DeleteOptions) -> list[Object]:
        """Delete these incarnations, one after the other; return what was deleted or marked. Absent ones are passed over."""
        deleted = []
        for item in items:
            given = item.object["metadata"]
            of_this = DeleteOptions(
                options.policy, options.orphan_dependents, options.uid or uid_of(item.object), options.resource_version, options.dry_run
            )  # fmt: skip
            try:
                obj, _ = await self.delete(given.get("namespace", ""), given["name"], of_this)
            except NotFound:
                continue
            deleted.append(obj)
        return deleted

    async def _guarded(
        self, namespace: str, name: str, plan: Callable[[Object], Plan], *, dry_run: bool, repeatable: bool
    ) -> tuple[Object, bool]:
        """Plan and commit until nobody interferes; return the object and whether it was removed.

        Terminates because each further round sees a commit of somebody else.
        """
        item = self.cache.get(self.key(namespace, name))
        certain = item is None
        if item is None:
            item = await self._live(namespace, name)
        while True:
            planned = self._planned(plan, item, certain=certain)
            settled = planned is not None and not planned.remove and planned.obj == item.object
            if planned is not None and not settled and not dry_run:
                try:
                    return await self._commit(item, planned, repeatable=repeatable)
                except Overtaken as overtaken:
                    if overtaken.current is None:
                        raise self.not_found(name) from None
                    item, certain = self.decode(overtaken.current), True
                    continue
            if planned is not None and certain:
                if not settled:
                    await self._transactions.check_claims(item.key, item.object, planned.obj)
                return planned.obj, planned.remove
            item, certain = await self._live(namespace, name), True

    @staticmethod
    def _planned(plan: Callable[[Object], Plan], item: Item, *, certain: bool) -> Plan | None:
        """Return the plan; None when it fails for an object that may be behind."""
        try:
            return plan(item.object)
        except StatusError:
            if certain:
                raise
            return None

    async def _commit(self, item: Item, planned: Plan, *, repeatable: bool) -> tuple[Object, bool]:
        if planned.remove:
            revision = await self._transactions.remove(item.key, item.revision, item.object)
        else:
            revision = await self._transactions.replace(item.key, item.revision, item.object, planned.obj, repeatable=repeatable)
        return codec.at_revision(planned.obj, revision), planned.remove

    async def _live(self, namespace: str, name: str) -> Item:
        entry = await self._read(self.key(namespace, name))
        if entry is None:
            raise self.not_found(name)
        return self.decode(entry)

    async def _read(self, key: str) -> Entry | None:
        with reading(f"read {self.resource.plural}"):
            return await self.storage.get(key)
