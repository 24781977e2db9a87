"""Trims machines and Migrations to the parts that virt-handler reads, for its cache. Pure.

Annotations alone may have 256 KiB, which take ten times as much memory when parsed.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_migration

_UNREAD: Final = ("annotations", "labels", "managedFields")
"""Metadata; a write to ``/status`` changes only the status."""
_OF_SCHEDULING: Final = ("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints")


def trim_machine(vm: Object) -> Object:
    """Return a machine without large parts that virt-handler does not read."""
    return _without(_without(vm, "metadata", _UNREAD), "spec", _OF_SCHEDULING)


def _without(obj: Object, part: str, unread: tuple[str, ...]) -> Object:
    found = obj.get(part)
    return {**obj, part: {key: value for key, value in found.items() if key not in unread}} if isinstance(found, dict) else obj


def trim_migration(migration: Object) -> Object:
    """Return a Migration without metadata that virt-handler does not read, and with only the machine's name in its spec."""
    return {
        **_without(migration, "metadata", _UNREAD),
        "spec": {"selector": {"name": dig_migration(migration, "spec", "selector", "name")}},
    }
