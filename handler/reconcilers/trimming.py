"""The part of each machine and Migration that virt-handler keeps a copy of: what is read here. Pure.

Whoever wrote them may have made the rest long: annotations alone may have 256 KiB, which take ten times as much memory once they are read.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig

_UNREAD: Final = ("annotations", "labels", "managedFields")
"""Of the metadata. A write to ``/status`` changes nothing but the status."""
_OF_SCHEDULING: Final = ("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints")
"""Of a machine's spec: what its pod asks of a node."""


def trim_machine(vm: Object) -> Object:
    """Return a machine without what may be long and nobody here reads."""
    return _without(_without(vm, "metadata", _UNREAD), "spec", _OF_SCHEDULING)


def _without(obj: Object, part: str, unread: tuple[str, ...]) -> Object:
    found = obj.get(part)
    return {**obj, part: {key: value for key, value in found.items() if key not in unread}} if isinstance(found, dict) else obj


def trim_migration(migration: Object) -> Object:
    """Return a Migration likewise; of its spec which machine it is of."""
    return {**_without(migration, "metadata", _UNREAD), "spec": {"selector": {"name": dig(migration, "spec", "selector", "name")}}}
