"""Objects as storage keeps them: compact JSON with ``kind`` and ``apiVersion``, without the revision that storage itself knows."""

from __future__ import annotations

from typing import Any

import orjson

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.strategy import Strategy
from apiserver.registry.generic.watchcache import Item
from storage.port import Entry


def collection(root: str, resource: Resource) -> str:
    """Return the prefix of the resource's keys, which ends with a slash: ``/registry/kubevirt.io/virtualmachines/``."""
    return f"{root}/{resource.group}/{resource.plural}/"


def claim_key(root: str, resource: Resource, claim: str) -> str:
    """Return the key that stands for a claim; its value is the key of the object that holds it."""
    return f"{root}/claims/{resource.group}/{claim}"


def encode(obj: Object) -> bytes:
    """Return what storage keeps of an object."""
    metadata = obj["metadata"]
    if "resourceVersion" in metadata:
        obj = {**obj, "metadata": {key: value for key, value in metadata.items() if key != "resourceVersion"}}
    return orjson.dumps(obj)


def decode(strategy: Strategy, entry: Entry) -> Item:
    """Return the object of an entry, with its revision and with defaults for fields that are younger than it.

    Raises:
        ValueError: the value is no object of ours.
    """
    obj = orjson.loads(entry.value)
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        raise ValueError(f"the value of {entry.key} is no object")  # noqa: TRY004 - it is data that is wrong, not a caller
    stale = obj.get("apiVersion") != strategy.resource.api_version
    if stale:
        obj = _converted(strategy, obj)
    strategy.default(obj)
    obj = at_revision(obj, entry.mod_revision)
    return Item(entry.key, entry.mod_revision, obj, orjson.dumps(obj), stale)


def _converted(strategy: Strategy, obj: Object) -> Object:
    spoke = strategy.spokes.get(str(obj.get("apiVersion")))
    if spoke is None:
        raise ValueError(f"it is of version {str(obj.get('apiVersion'))[:128]!r}, which nobody here can convert")
    spoke.default(obj)
    return spoke.to_hub(obj)


def written(key: str, revision: int, obj: Object, value: bytes) -> Item:
    """Return the item of an object that was stored as ``value`` at ``revision``."""
    del value
    obj = at_revision(obj, revision)
    return Item(key, revision, obj, orjson.dumps(obj))


def at_revision(obj: Object, revision: int) -> Object:
    """Return the object with this ``resourceVersion``; the rest is shared with ``obj``."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}


def dump(obj: Object) -> bytes:
    """Return the JSON of an object as it goes on the wire."""
    return orjson.dumps(obj)


def copy_of(item: Item) -> Object:
    """Return a deep copy of an item's object."""
    duplicate: Any = orjson.loads(item.data)
    return duplicate  # type: ignore[no-any-return]  # JSON of an object is an object


def copy(obj: Object) -> Object:
    """Return a deep copy."""
    duplicate: Any = orjson.loads(orjson.dumps(obj))
    return duplicate  # type: ignore[no-any-return]  # JSON of an object is an object
