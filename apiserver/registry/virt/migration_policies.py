"""Strategy of the cluster-scoped ``migrationpolicies``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.validation import FieldError
from apiserver.apis.virt.places.resources import MIGRATION_POLICIES
from apiserver.apis.virt.v1alpha1 import kubevirt_fields, migration_policy
from apiserver.registry.generic.strategy import Column, Strategy


class MigrationPolicyStrategy(Strategy):
    """Rules of MigrationPolicy, which virt-controller reads when a migration starts."""

    resource = MIGRATION_POLICIES
    singular = "migrationpolicy"
    short_names = ("vmmp",)
    model = migration_policy.MigrationPolicy
    has_status = False

    def hint(self, field: str, value: object = None) -> str:
        """Return a hint at our name for KubeVirt's."""
        return kubevirt_fields.hint(field, value)

    def validate(self, obj: Object) -> list[FieldError]:
        """Return a new MigrationPolicy's errors."""
        return migration_policy.validate(obj)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return an edited MigrationPolicy's errors."""
        return migration_policy.validate_update(obj, old)

    def columns(self) -> tuple[Column, ...]:
        """Return the columns."""
        return (
            Column("Bandwidth", description="Maximum bytes per second of a migration."),
            Column("Timeout-Per-GiB", "integer", description="Seconds that a migration may take per GiB of memory."),
            Column("Allow-Pause", "boolean", description="True if the guest is paused at the timeout."),
            Column("Allow-Auto-Converge", "boolean", description="True if QEMU may throttle the guest.", priority=1),
            Column("Max-Downtime-Ms", "integer", description="Longest pause of the guest at the end.", priority=1),
            Column("Parallel-Connections", "integer", description="Connections that carry the memory.", priority=1),
        )

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """Return one value per column."""
        del now
        spec = obj.get("spec") or {}
        bandwidth = spec.get("bandwidth")
        return [
            None if bandwidth is None else str(bandwidth),
            spec.get("completionTimeoutPerGiB"),
            spec.get("allowPause"),
            spec.get("allowAutoConverge"),
            spec.get("maxDowntimeMilliseconds"),
            spec.get("parallelConnections"),
        ]
