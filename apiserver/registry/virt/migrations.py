"""Strategy of ``migrations``. A lock in etcd allows one unfinished Migration per virtual machine."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.validation import FieldError
from apiserver.apis.virt.lifecycle import phases, progress
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATIONS
from apiserver.apis.virt.v1alpha1 import defaults, kubevirt_fields, status_validation, types, validation
from apiserver.registry.generic.strategy import Column, Strategy
from apiserver.registry.virt.virtualmachines import add_finalizer


class MigrationStrategy(Strategy):
    """Rules of Migration: an immutable spec, and a finalizer until the guest runs on exactly one side."""

    resource = MIGRATIONS
    singular = "migration"
    short_names = ("vmmig",)
    model = types.Migration

    def hint(self, field: str, value: object = None) -> str:
        """Return a hint at our name for KubeVirt's."""
        return kubevirt_fields.hint(field, value)

    def default(self, obj: Object) -> None:
        """Set defaults in the spec."""
        defaults.default_migration(obj)

    def prepare_for_create(self, obj: Object) -> None:
        """Add the finalizer, which stays until virt-controller has deleted the losing pod."""
        add_finalizer(obj, names.MIGRATION_FINALIZER)

    def validate(self, obj: Object) -> list[FieldError]:
        """Return a new Migration's errors."""
        return validation.validate_migration(obj)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return an update's errors: the spec is immutable."""
        return validation.validate_migration_update(obj, old)

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return a status' errors: a final phase is immutable."""
        return status_validation.validate_migration_status(obj, old)

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        """Return further fields for selectors."""
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        return {
            "spec.selector.name": (spec.get("selector") or {}).get("name") or "",
            "status.phase": status.get("phase") or "",
            "status.sourceNode": status.get("sourceNode") or "",
            "status.targetNode": status.get("targetNode") or "",
        }

    def columns(self) -> tuple[Column, ...]:
        """Return the columns."""
        return (
            Column("Phase", description="The phase."),
            Column("VM", description="The virtual machine."),
            Column("Source", description="The source node."),
            Column("Target", description="The target node."),
            Column("Progress", description="Transferred share."),
            Column("Attempt", "integer", description="Number of the attempt."),
            Column("Source-Pod", description="The source pod.", priority=1),
            Column("Target-Pod", description="The target pod.", priority=1),
            Column("Message", description="The reason of its end.", priority=1),
        )

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """Return one value per column."""
        del now
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        done = progress.percent(obj)
        return [
            status.get("phase") or "Pending",
            (spec.get("selector") or {}).get("name"),
            status.get("sourceNode"),
            status.get("targetNode"),
            None if done is None else f"{done}%",
            status.get("attempt"),
            status.get("sourcePod"),
            status.get("targetPod"),
            status.get("message"),
        ]

    def locks(self, obj: Object) -> frozenset[str]:
        """Return the Migration's lock on its machine; none if the Migration is finished."""
        if not phases.is_unfinished(obj):
            return frozenset()
        return frozenset({f"migrating/{obj['metadata']['namespace']}/{obj['spec']['selector']['name']}"})

    def lock_taken(self, obj: Object, lock: str, holder: str, held_by: Object | None) -> str:
        """Return a message that names the other Migration."""
        del lock
        name, other = obj["spec"]["selector"]["name"], holder.rpartition("/")[2]
        since = f", begun {made}" if (made := objects.dig(held_by, "metadata", "creationTimestamp")) else ""
        message = f'a migration of virtual machine "{name}" is already in progress: "{other}"{since}'
        return f"{message}; wait until it ends, or cancel it: kubectl delete {MIGRATIONS.plural}/{other}"
