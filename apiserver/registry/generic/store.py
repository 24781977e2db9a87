"""Store of one resource: create, get, update, apply, act, delete (Go: ``registry/generic/registry/store.go``).

Reads use the watch cache, after a linearizable read of its required revision. Writes also raise admission's errors.

Further versions' stores (:class:`~apiserver.registry.generic.strategy.Spoke`) share the hub's cache. Plans and
admission work on the stored version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from apiserver.apis.meta import names
from apiserver.apis.meta.errors import AlreadyExists, BadRequest, Invalid, NotFound, Timeout
from apiserver.apis.meta.objects import HubObject, Object, is_deleting, name_of, uid_of
from apiserver.apis.meta.validation import FieldError
from apiserver.registry.cacher.items import Item
from apiserver.registry.cacher.watchcache import WatchCache
from apiserver.registry.generic import codec, metadata
from apiserver.registry.generic.admission import Admission
from apiserver.registry.generic.admitting import Admitter
from apiserver.registry.generic.guaranteed_update import guaranteed_update
from apiserver.registry.generic.options import Caller, DeleteOptions, WriteOptions
from apiserver.registry.generic.ownership import FieldOwners, OwnersOf, no_owners
from apiserver.registry.generic.planning import Part, Plan, Planner
from apiserver.registry.generic.stored import StoredObjects
from apiserver.registry.generic.strategy import Strategy, Verb
from apiserver.registry.generic.transactions import Overtaken, Unreadable
from storage.port import Entry, Storage

GENERATED_NAMES: Final = 8
"""Random names to try."""

Stored = Callable[[], Object]
"""Returns a copy in the store's version."""
Change = Callable[[Stored], Object]
"""Called again with a newer stored object."""


class Store:
    """The objects of one strategy under ``root`` (``/registry``)."""

    def __init__(
        self,
        storage: Storage,
        cache: WatchCache,
        strategy: Strategy,
        *,
        root: str,
        admission: Admission,
        now: Callable[[], datetime],
        owners: OwnersOf = no_owners,
    ) -> None:
        self.strategy = strategy
        self.resource = strategy.resource
        self.cache = cache
        self.storage = storage
        self._now = now
        self._owners = owners
        self._planner = Planner(strategy)
        self._admitter = Admitter(admission, strategy, self._planner)
        self.objects = StoredObjects(storage, cache, strategy, root)

    def shown(self, item: Item) -> Object:
        """Return an item's object in this version; never change it."""
        if self.strategy.hub is self.strategy:
            return item.object
        return self.strategy.from_hub(codec.copy(item.object))

    def shown_bytes(self, item: Item, end: bytes = b"") -> bytes:
        """Return the JSON of an item's object in this version, followed by ``end``."""
        return b"".join((*item.pieces, end)) if self.strategy.hub is self.strategy else codec.dump(self.shown(item)) + end

    def shown_pieces(self, items: Iterable[Item]) -> tuple[list[bytes], int]:
        """Return (pieces of the objects' JSON in this version, each object after a comma; their length)."""
        as_stored = self.strategy.hub is self.strategy
        found: list[bytes] = []
        for item in items:
            found.append(b",")
            found += item.pieces if as_stored else (self.shown_bytes(item),)
        return found, sum(map(len, found))

    async def get(self, namespace: str, name: str, *, fresh: bool = True, at_least: int = 0) -> Item:
        """Return one object: current (``fresh``), or not older than ``at_least``.

        Raises NotFound, Unreadable, Timeout for a future revision, ServiceUnavailable, TooManyRequests before the cache has listed.
        """
        key = self.objects.key(namespace, name)
        if self.cache.synced.is_set() and not self.cache.is_usable:
            return await self.objects.live(namespace, name)
        try:
            await self.cache.wait_fresh(None if fresh else at_least)
        except Timeout:
            if not fresh:
                raise
            return await self.objects.live(namespace, name)
        item = self.cache.get(key)
        if item is None:
            if key in self.cache.undecodable:
                return await self.objects.live(namespace, name)
            raise self.objects.not_found(name)
        return item

    async def create(self, namespace: str, obj: Object, options: WriteOptions) -> Item:
        """Store a new object, consuming ``obj``, and return it; after a dry run it has no ``resourceVersion``.

        Raises BadRequest, Invalid; NotFound or Forbidden for its namespace; AlreadyExists; Conflict for a taken lock.
        """
        metadata.match_request(obj, self.resource, namespace)
        refused = self._planner.read(obj, options)
        given = obj["metadata"]
        if given.get("resourceVersion"):
            raise BadRequest("resourceVersion should not be set on objects to be created")
        self.strategy.default(obj)
        metadata.wipe(given)  # no manager may own these
        self._own(self._owners(""), None, obj, options)
        return await self._add(namespace, obj, refused, options)

    async def _add(self, namespace: str, obj: Object, refused: Sequence[FieldError], options: WriteOptions) -> Item:
        requested = obj["metadata"].get("name", "")
        attributes = self._admitter.attributes("CREATE", "", namespace, requested, options)
        made = self._admitter.stored_form(obj)
        if attributes is not None:
            made = await self._admitter.mutate(attributes, made, None)
        given = made["metadata"]
        base = given.get("generateName") if not given.get("name") else None
        for _ in range(GENERATED_NAMES if base else 1):
            if base:
                given["name"] = names.generate(base)
            new = self._planner.create(codec.copy(made) if base else made, refused, self._now())
            if attributes is not None:
                attributes.name = requested or name_of(new)
                await self._admitter.validate(attributes, new, None)
            try:
                key = self.objects.key(namespace, name_of(new))
                return await self.objects.write(key, None, new, dry_run=options.dry_run, repeatable=not base)
            except Overtaken as overtaken:
                if not base:
                    raise self._exists(new, overtaken.current) from None
        message = f'{metadata.qualified(self.resource)} "{given["name"]}" already exists, the server was not able to generate a unique name'
        raise AlreadyExists(message, metadata.details(self.resource, given["name"], retry_after_seconds=1))

    def _exists(self, new: Object, current: Entry | None) -> AlreadyExists:
        name = new["metadata"]["name"]
        prefix = "object is being deleted: " if current is not None and is_deleting(self.objects.readable(current).object) else ""
        return AlreadyExists(
            f'{prefix}{metadata.qualified(self.resource)} "{name}" already exists', metadata.details(self.resource, name)
        )  # fmt: skip

    async def update(
        self, namespace: str, name: str, change: Change, options: WriteOptions, *, part: Part = "", repeatable: bool = True
    ) -> Item:
        """Change an object or its ``part``, and return it; without a difference, write nothing.

        ``change`` is called, perhaps several times, with a function that returns a copy of the object; it returns the wanted one.
        ``repeatable``: ``change`` is idempotent. Raises NotFound, Conflict, BadRequest, Invalid, and errors of ``change``.
        """
        owners = self._owners(part)

        async def plan(item: Item) -> Plan:
            live = self.shown(item)
            wanted = change(self._copier(item))
            refused = self._planner.receive(wanted, live, options, part)
            self._own(owners, live, wanted, options)
            return await self._admitter.update(item, wanted, refused, options, part)

        item, _ = await guaranteed_update(self.objects, namespace, name, plan, dry_run=options.dry_run, repeatable=repeatable)
        return item

    def applies(self, part: Part = "") -> bool:
        """Return whether managed fields of this part, and so server-side apply, are on."""
        return self._owners(part) is not None

    async def apply(
        self,
        namespace: str,
        name: str,
        applied: Object,
        options: WriteOptions,
        *,
        part: Part = "",
        may_create: Callable[[], Awaitable[None]] | None = None,
    ) -> tuple[Item, bool]:
        """Server-side apply: merge ``applied`` into the object, or create it; return it and whether it was created.

        ``may_create`` raises Forbidden without the right to create. Raises Conflict with other managers' fields without
        ``options.force``, or by ``uid`` or ``resourceVersion``; NotFound for an absent object's subresource; BadRequest for a kind or
        part without managed fields.
        """
        owners = self._owners(part)
        if owners is None:
            raise BadRequest(f"{self.resource.plural}{'/' + part if part else ''} does not support apply, because it has no managed fields")

        async def plan(item: Item) -> Plan:
            live = self.shown(item)
            wanted = self._applied(owners, self._copier(item)(), applied, options)
            metadata.must_be_named(wanted, name)
            refused = self._planner.receive(wanted, live, options, part)
            return await self._admitter.update(item, wanted, refused, options, part)

        while True:
            try:
                item, _ = await guaranteed_update(self.objects, namespace, name, plan, dry_run=options.dry_run, repeatable=True)
            except NotFound:
                if part or await self.objects.read(self.objects.key(namespace, name)) is not None:
                    raise
            else:
                return item, False
            try:
                if may_create is not None:
                    await may_create()
                return await self._create_applied(namespace, name, owners, applied, options), True
            except AlreadyExists:
                continue  # merge with it

    async def apply_scale(self, namespace: str, name: str, applied: Object, options: WriteOptions) -> Item:
        """Merge an applied ``Scale`` and return the object; its manager then owns the replicas.

        Raises NotFound, BadRequest if the kind cannot be scaled, or as :meth:`apply`.
        """
        scaling = self.strategy.scaling
        if scaling is None:
            raise BadRequest(f"{self.resource.plural} cannot be scaled")
        item = await self.get(namespace, name)
        replicas = scaling.applied(codec.copy_of(item), applied, self.strategy.from_hub)
        given = applied.get("metadata") or {}
        identity = {"name": name, "namespace": namespace, **{key: given[key] for key in ("uid", "resourceVersion") if given.get(key)}}
        of_object = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": identity}
        item, _ = await self.apply(namespace, name, {**replicas, **of_object}, options, part="scale")
        return item

    async def _create_applied(self, namespace: str, name: str, owners: FieldOwners, applied: Object, options: WriteOptions) -> Item:
        if uid := (applied.get("metadata") or {}).get("uid"):
            why = f"uid mismatch: the provided object specified uid {str(uid)[:64]}, and no existing object was found"
            raise metadata.conflict(self.resource, name, why)
        metadata.must_be_named(applied, name)
        obj = self._applied(owners, None, applied, options)
        metadata.match_request(obj, self.resource, namespace, name)
        obj["metadata"].pop("resourceVersion", None)  # of a deleted object
        refused = self._planner.read(obj, options)
        self.strategy.default(obj)
        return await self._add(namespace, obj, refused, options)

    def _applied(self, owners: FieldOwners, live: Object | None, applied: Object, options: WriteOptions) -> Object:
        try:
            return owners.apply(live, applied, options.manager, force=options.force, now=self._now())
        except Invalid as refused:
            raise self._planner.with_hints(refused) from None

    async def act(self, namespace: str, name: str, subresource: str, verb: Verb, body: Object, options: WriteOptions) -> Item:
        """Apply a verb to an object and return the result. Raises NotFound, and errors of the verb."""
        owners = self._owners(subresource)

        async def plan(item: Item) -> Plan:
            live = self.shown(item)
            wanted = self.strategy.from_hub(HubObject(verb.apply(codec.copy_of(item), body, self._now())))
            self._own(owners, live, wanted, options)
            return await self._admitter.act(item, wanted, subresource, options)

        item, _ = await guaranteed_update(self.objects, namespace, name, plan, dry_run=options.dry_run, repeatable=False)
        return item

    async def delete(self, namespace: str, name: str, options: DeleteOptions, *, uid: str | None = None) -> tuple[Item, bool]:
        """Delete an object, or mark it if it has finalizers; return (its last state, whether it is gone).

        ``uid``: the only incarnation to delete, hidden from admission. Raises NotFound, Conflict, Unreadable, and admission's refusal.
        """
        conditions = options if uid is None else replace(options, uid=uid)

        async def plan(item: Item) -> Plan:
            planned = self._planner.delete(item.object, conditions, self._now())
            attributes = self._admitter.attributes("DELETE", "", namespace, name, options)
            if attributes is not None:
                await self._admitter.delete(attributes, item.object)
            for each in self.strategy.hub.warnings_on_delete(item.object, options.grace_period_seconds):
                options.caller.warn(each)
            return planned

        try:
            return await guaranteed_update(self.objects, namespace, name, plan, dry_run=options.dry_run, repeatable=True)
        except Unreadable as unreadable:
            if not options.ignore_read_error:
                raise
            await self.objects.remove_unread(unreadable.entry)
            nothing = {"metadata": {"namespace": namespace, "name": name}}
            return Item(unreadable.entry.key, 0, nothing, codec.dump(nothing)), True

    async def delete_each(self, items: Iterable[Item], options: DeleteOptions) -> list[Item]:
        """Delete these objects in order; return those that existed.

        Raises the first error, and the rest stay: Conflict for an object with the same name and another uid.
        """
        deleted = []
        for item in items:
            given = item.object["metadata"]
            uid = uid_of(item.object) if options.uid is None else None
            try:
                await self.delete(given.get("namespace", ""), given["name"], options, uid=uid)
            except NotFound:
                continue
            deleted.append(item)
        return deleted

    async def connecting(self, namespace: str, name: str, subresource: str, caller: Caller) -> None:
        """Call admission for a stream; raises its refusal."""
        await self._admitter.connect(namespace, name, subresource, caller)

    def _own(self, owners: FieldOwners | None, live: Object | None, new: Object, options: WriteOptions) -> None:
        if owners is not None:
            if live is not None:
                metadata.put_back(new["metadata"], live["metadata"])  # immutable fields get no owner
            owners.update(live, new, options.manager, self._now())
            return
        new["metadata"].pop("managedFields", None)
        if live is not None and (kept := live["metadata"].get("managedFields")):
            new["metadata"]["managedFields"] = kept

    def _copier(self, item: Item) -> Stored:
        return lambda: self.strategy.from_hub(codec.copy_of(item))
