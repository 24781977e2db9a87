"""Our own resources."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places import names

WATCH_IDLE_SECONDS: Final = 45.0
"""A watch without events and bookmarks for so long leads to a virt-api that is cut off: its node is, and no connection was closed."""

VIRTUAL_MACHINES: Final = Resource(names.GROUP, names.VERSION, "virtualmachines", "VirtualMachine")
MIGRATIONS: Final = Resource(names.GROUP, names.VERSION, "migrations", "Migration")
MIGRATION_POLICIES: Final = Resource(names.GROUP, names.VERSION, "migrationpolicies", "MigrationPolicy", namespaced=False)
REPLICA_SETS: Final = Resource(names.GROUP, names.VERSION, "virtualmachinereplicasets", "VirtualMachineReplicaSet")
