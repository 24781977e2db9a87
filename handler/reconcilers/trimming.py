"""The part of each machine and Migration that virt-handler keeps a copy of: what is read here. Pure.

Whoever wrote them may have made the rest long: annotations alone may have 256 KiB, which take ten times as much memory once they are read.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig

_UNREAD: Final = ("annotations", "labels", "managedFields")
"""Of the metadata. A write to ``/status`` changes none of it."""


def trim_machine(vm: Object) -> Object:
    """Return a machine without the metadata that nobody here reads."""
    metadata = vm.get("metadata")
    if isinstance(metadata, dict):
        vm["metadata"] = {key: value for key, value in metadata.items() if key not in _UNREAD}
    return vm


def trim_migration(migration: Object) -> Object:
    """Return a Migration likewise; of its spec which machine it is of."""
    return {**trim_machine(migration), "spec": {"selector": {"name": dig(migration, "spec", "selector", "name")}}}
