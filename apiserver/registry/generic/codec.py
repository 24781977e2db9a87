"""Stored objects: compact JSON with ``kind`` and ``apiVersion``; storage provides ``resourceVersion``."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import orjson

from apiserver.apis.meta import amounts
from apiserver.apis.meta.objects import HubObject, Object
from apiserver.apis.meta.resources import Resource
from apiserver.registry.cacher.canonical import Form
from apiserver.registry.cacher.items import Item
from apiserver.registry.generic.strategy import Strategy
from storage.encryption.prefix import ENCRYPTED
from storage.port import Entry

_Copied = TypeVar("_Copied", bound=Object)


def collection(root: str, resource: Resource) -> str:
    """Return the prefix of the resource's keys: ``/registry/kubevirt.io/virtualmachines/``."""
    return f"{root}/{resource.group}/{resource.plural}/"


def lock_key(root: str, resource: Resource, lock: str) -> str:
    """Return the storage key of a uniqueness lock."""
    return f"{root}/claims/{resource.group}/{lock}"  # stored keys cannot change


@functools.cache
def form_of(strategy: Strategy) -> Form:
    """Return the canonical ``Form`` of the strategy's objects."""
    return Form(strategy.resource.api_version, strategy.resource.kind)


def encode(strategy: Strategy, obj: Object) -> bytes:
    """Return an object's bytes for storage."""
    return form_of(strategy).stored(obj)


def decode(strategy: Strategy, entry: Entry) -> Item:
    """Return an entry as ``Item`` in the hub's version, with revision, and defaults for newer fields. Raises one of DECODING_ERRORS."""
    if entry.value.startswith(ENCRYPTED):
        raise ValueError("it is encrypted with a key that this server does not have")
    obj = orjson.loads(entry.value)
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict) or not obj["metadata"]:
        raise ValueError(f"the value of {entry.key} is not an object")
    another = obj.get("apiVersion") != strategy.resource.api_version
    if another:
        obj = _converted(strategy, obj)
    amounts.write_as_strings(strategy.model, obj)  # old objects have numbers
    strategy.default(obj)
    return form_of(strategy).item(entry.key, entry.mod_revision, obj, stale=another or entry.stale)


def _converted(strategy: Strategy, obj: Object) -> Object:
    spoke = strategy.spokes.get(str(obj.get("apiVersion")))
    if spoke is None:
        raise ValueError(f"it is of version {str(obj.get('apiVersion'))[:128]!r}, which this server cannot convert")
    spoke.default(obj)
    return spoke.to_hub(obj)


def written(strategy: Strategy, key: str, revision: int, obj: Object, value: bytes) -> Item:
    """Return the ``Item`` of an object stored as ``value`` at ``revision``."""
    return form_of(strategy).written(key, revision, obj, value)


def dump(obj: Object) -> bytes:
    """Return an object's JSON for clients."""
    return orjson.dumps(obj)


def copy_of(item: Item) -> HubObject:
    """Return a mutable copy of an item's object.

    ``metadata.managedFields`` is shared: never change it.
    """
    obj = item.object
    metadata = obj["metadata"]
    managed = metadata.get("managedFields")
    if managed is None:
        return HubObject(_copied(obj))
    duplicate = _copied({**obj, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}})
    duplicate["metadata"]["managedFields"] = managed
    return HubObject(duplicate)


def _copied(value: dict[str, Any]) -> dict[str, Any]:
    copied = value.copy()
    for name, each in value.items():
        kind = type(each)
        if kind is dict:
            copied[name] = _copied(each)
        elif kind is list:
            copied[name] = _copied_list(each)
    return copied


def _copied_list(value: list[Any]) -> list[Any]:
    return [_copied(each) if type(each) is dict else _copied_list(each) if type(each) is list else each for each in value]


def copy(obj: _Copied) -> _Copied:
    """Return a deep copy."""
    duplicate: _Copied = orjson.loads(orjson.dumps(obj))
    return duplicate
