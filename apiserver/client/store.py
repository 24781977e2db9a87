"""An informer's objects, indexes and subscribers, without I/O.

In any order of arrival of lists, watch events and our own writes:

* an object never returns to an older resourceVersion, or after its deletion;
* a changed uid under one name is a deletion and an addition;
* repeated states are not reported.

Exceptions of callbacks and indexers are logged and counted in :attr:`Store.faults` (client-go: end the process).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeAlias

from apiserver.apis.meta.objects import NamespacedName, Object, key_of, resource_version_of, uid_of

logger = logging.getLogger(__name__)

Callback: TypeAlias = Callable[[Object | None, Object | None], None]
"""``callback(old, new)``: ``old`` is None for a new object, ``new`` for a deleted one. Must be fast."""
Indexer: TypeAlias = Callable[[Object], Iterable[Hashable]]
"""Returns an object's index values, once per state. If it raises, the object is not indexed."""

MAX_TOMBSTONES: Final = 1024
"""Remembered deletions: more than a watch has in transit."""


class Store:
    """An informer's objects, by key and by index."""

    def __init__(self, indexers: Mapping[str, Indexer]) -> None:
        self._objects: dict[NamespacedName, Object] = {}
        self._indexers = dict(indexers)
        self._indexes: dict[str, dict[Hashable, dict[NamespacedName, None]]] = {name: {} for name in indexers}
        """Keys in order of arrival."""
        self._prepared: dict[NamespacedName, tuple[Object, dict[str, tuple[Hashable, ...]]]] = {}
        self._indexed: dict[NamespacedName, dict[str, tuple[Hashable, ...]]] = {}
        self._tombstones: OrderedDict[str, int] = OrderedDict()
        self._listed_at = 0
        self._callbacks: list[Callback] = []
        self.faults = 0
        """Exceptions of callbacks and indexers."""

    def subscribe(self, callback: Callback) -> None:
        """Call ``callback(None, object)`` now for every object, then ``callback(old, new)`` for each change; ``new`` is None if deleted."""
        for each in list(self._objects.values()):
            self._call(callback, None, each)
        self._callbacks.append(callback)

    def get(self, key: NamespacedName) -> Object | None:
        """Return the read-only object, or None."""
        return self._objects.get(key)

    def list(self) -> Iterable[Object]:
        """Return a live view of all objects: do not change the store while iterating."""
        return self._objects.values()

    def by_index(self, name: str, value: Hashable, limit: int = 0) -> Iterable[Object]:
        """Return the objects with ``value`` in the index ``name``, sorted by namespace and name; with a limit, the first ones indexed."""
        keys = self._indexes[name].get(value, {})
        return [self._objects[key] for key in (islice(keys, limit) if limit else sorted(keys))]

    def __len__(self) -> int:
        return len(self._objects)

    def prepare(self, obj: Object) -> None:
        """Compute an object's index values before the next :meth:`replace_in_steps`, to spread the cost."""
        known = self._objects.get(key_of(obj))
        if known is None or resource_version_of(known) != resource_version_of(obj):
            self._prepared[key_of(obj)] = obj, self._found(obj)

    def replace_in_steps(self, objects: Iterable[Object], resource_version: str) -> Iterator[None]:
        """Replace all objects by a consistent list; missing ones are deleted. Each ``next`` does one step: iterate to the end.

        Between two steps, results of our own writes may be applied, and readers see old and new objects. Older revisions are believed: etcd
        may have been restored.
        """
        listed = {key_of(each): each for each in objects}
        known = dict(self._objects)
        self._listed_at = revision(resource_version)
        self._tombstones.clear()
        for key in known.keys() - listed.keys():
            if self._objects[key] is known[key]:
                self._remove(key)
                yield
        for key, new in listed.items():
            present = self._objects.get(key)
            if present is None or present is known.get(key) or _revision_of(present) < _revision_of(new):
                self._put(key, new)
                yield
        self._prepared.clear()

    def apply(self, new: Object) -> None:
        """Add or update an object, unless a newer state or its deletion is known."""
        at = _revision_of(new)
        if at and (at <= self._tombstones.get(uid_of(new), 0) or (at <= self._listed_at and key_of(new) not in self._objects)):
            return  # deleted later
        old = self._objects.get(key_of(new))
        if old is not None and at and at < _revision_of(old):
            return
        self._put(key_of(new), new)

    def delete(self, last: Object) -> None:
        """Remove an object; ``last`` is its last state. A newer object of this name stays."""
        at = _revision_of(last)
        if uid_of(last):
            self._tombstones[uid_of(last)] = at
            if len(self._tombstones) > MAX_TOMBSTONES:
                self._tombstones.popitem(last=False)
        old = self._objects.get(key_of(last))
        if old is None or (uid_of(old) != uid_of(last) or (at and at < _revision_of(old))):
            return
        self._remove(key_of(last))

    def _put(self, key: NamespacedName, new: Object) -> None:
        old = self._objects.get(key)
        if old is not None and uid_of(old) != uid_of(new):
            self._remove(key)
            old = None
        if old is not None and resource_version_of(old) == resource_version_of(new) != "":
            return
        self._unindex(key)
        self._objects[key] = new
        self._index(key, new)
        self._tell(old, new)

    def _remove(self, key: NamespacedName) -> None:
        old = self._objects.pop(key)
        self._unindex(key)
        self._tell(old, None)

    def _index(self, key: NamespacedName, new: Object) -> None:
        obj, found = self._prepared.pop(key, (None, {}))
        if obj is not new:
            found = self._found(new)
        for name, values in found.items():
            for value in values:
                self._indexes[name].setdefault(value, {})[key] = None
        if found:
            self._indexed[key] = found

    def _unindex(self, key: NamespacedName) -> None:
        for name, values in self._indexed.pop(key, {}).items():
            for value in values:
                keys = self._indexes[name].get(value, {})
                keys.pop(key, None)
                if not keys:
                    self._indexes[name].pop(value, None)

    def _tell(self, old: Object | None, new: Object | None) -> None:
        for callback in self._callbacks:
            self._call(callback, old, new)

    def _call(self, callback: Callback, old: Object | None, new: Object | None) -> None:
        try:
            callback(old, new)
        except Exception:
            self.faults += 1
            logger.exception("a callback failed", extra=_about(new or old))

    def _found(self, obj: Object) -> dict[str, tuple[Hashable, ...]]:
        return {name: values for name, indexer in self._indexers.items() if (values := self._values(name, indexer, obj))}

    def _values(self, name: str, indexer: Indexer, obj: Object) -> tuple[Hashable, ...]:
        try:
            values = tuple(indexer(obj))
            hash(values)  # unhashable values also count as a fault
        except Exception:
            self.faults += 1
            logger.exception("an index function failed: the object is not indexed", extra={"index": name, **_about(obj)})
            return ()
        return values


def revision(resource_version: str) -> int:
    """Return a resourceVersion as number (KEP-5504); 0 if it is not numeric."""
    return int(resource_version) if resource_version.isdecimal() else 0


def _revision_of(obj: Object) -> int:
    return revision(resource_version_of(obj))


def _about(obj: Object | None) -> dict[str, str]:
    namespace, name = key_of(obj or {})
    return {"kind": str((obj or {}).get("kind") or ""), "namespace": namespace, "object": name}
