"""The canonical JSON form of objects, which is served as written.

A stored value begins with ``{"apiVersion":…,"kind":…,"metadata":{"labels":{…},"name":…``. Clients get the same bytes,
with ``"resourceVersion":"7",`` inserted as the first member of ``metadata``.
"""

from __future__ import annotations

from typing import Final

import orjson

from apiserver.apis.meta.objects import Object
from apiserver.registry.cacher.items import Item
from apiserver.registry.cacher.sharing import pieces

_METADATA: Final = b'"metadata":{'
_REVISION: Final = b'"metadata":{"resourceVersion":"'


class Form:
    """The canonical JSON of one kind and version, as stored and served."""

    def __init__(self, api_version: str, kind: str) -> None:
        self._head = b'{"apiVersion":%b,"kind":%b,' % (orjson.dumps(api_version), orjson.dumps(kind))
        self._rest_at = len(self._head) + len(_METADATA)
        self._wire_head = self._head + _REVISION

    def stored(self, obj: Object) -> bytes:
        """Return the bytes of ``obj`` to store, without ``resourceVersion``."""
        return b"".join((self._head, _METADATA, _rest(obj)))

    def item(self, key: str, revision: int, obj: Object, *, stale: bool = False) -> Item:
        """Return the ``Item`` of an object; ``revision`` 0: not stored; ``stale``: the next write renews it."""
        if not revision:
            return Item(key, revision, None, b"".join((self._head, _METADATA, _rest(obj))), stale=stale)
        return self._item(key, revision, _rest(obj), stale=stale)

    def written(self, key: str, revision: int, obj: Object, value: bytes) -> Item:
        """Return the ``Item`` of an object stored at ``revision`` as ``value`` (:meth:`stored`)."""
        return self._item(key, revision, value, self._rest_at, obj=at_revision(obj, revision))

    def _item(
        self, key: str, revision: int, value: bytes, rest_at: int = 0, *, stale: bool = False, obj: Object | None = None
    ) -> Item:  # fmt: skip
        revision_end = b'%d",' % revision
        return Item(key, revision, obj, self._wire_head, *pieces(revision_end, value, rest_at), stale=stale, labels_at=len(revision_end))


def restamped(item: Item, revision: int) -> Item:
    """Return a copy of the item with this ``resourceVersion``."""
    at = item.labels_at
    if not at:
        obj = at_revision(item.object, revision)
        return Item(item.key, revision, obj, orjson.dumps(obj), stale=item.stale)
    new = b'%d",' % revision
    head, first, *others = item.pieces
    return Item(item.key, revision, None, head, new + first[at:], *others, stale=item.stale, labels_at=len(new))


def at_revision(obj: Object, revision: int) -> Object:
    """Return the object with this ``resourceVersion``, sharing other parts."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}


def _rest(obj: Object) -> bytes:
    given = obj["metadata"]
    metadata = {"labels": given["labels"], **given} if "labels" in given else {**given}
    metadata.pop("resourceVersion", None)
    if not metadata:
        raise ValueError("the object has no name")
    rest = {"metadata": metadata, **obj}
    rest["metadata"] = metadata
    rest.pop("apiVersion", None)
    rest.pop("kind", None)
    return orjson.dumps(rest)[1 + len(_METADATA) :]
