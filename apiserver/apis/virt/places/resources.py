"""Our own resources."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places import names

VIRTUAL_MACHINES: Final = Resource(names.GROUP, names.VERSION, "virtualmachines", "VirtualMachine")
MIGRATIONS: Final = Resource(names.GROUP, names.VERSION, "migrations", "Migration")
MIGRATION_POLICIES: Final = Resource(names.GROUP, names.VERSION, "migrationpolicies", "MigrationPolicy", namespaced=False)
REPLICA_SETS: Final = Resource(names.GROUP, names.VERSION, "virtualmachinereplicasets", "VirtualMachineReplicaSet")
