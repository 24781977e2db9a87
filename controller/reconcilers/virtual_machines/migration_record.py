"""The record of a live migration in its machine's status: source and target, start, and how the last one ended. Pure.

It is for users (``kubectl get vms`` prints ``Migrating`` from it) and decides nothing. When a migration succeeds, the target's virt-handler
writes the record together with the takeover.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, cast

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, name_of, uid_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import phases

if TYPE_CHECKING:
    from apiserver.apis.virt.typed import MigrationState

_FROM_MIGRATION: Final = ("sourceNode", "sourcePod", "targetNode", "targetPod", "startTime", "phase")


def record(vm: Object, migrations: Sequence[Object], now: datetime) -> MigrationState | None:
    """Return what ``status.migration`` should be; None before the machine's first migration begins.

    ``migrations`` are all existing ones for the machine's name; ``now`` is recorded as the end of one that no longer exists.
    """
    stored = dig_vm(vm, "status", "migration")
    sound = [each for each in migrations if not structure.of_migration(each)]  # an invalid one would prevent writing the machine
    if (current := next((each for each in sound if _moves(each, vm)), None)) is not None:
        return _of(current)
    if stored is None or stored.get("phase") in phases.MIGRATION_FINAL:
        return stored
    found = next((each for each in migrations if uid_of(each) == stored.get("uid")), None)
    if found is not None and found not in sound:
        return stored
    if found is None:
        return {**stored, "phase": phases.CANCELLED, "endTime": times.to_rfc3339(now)}
    if phases.phase_of(found) == phases.SUCCEEDED:
        return stored  # the machine was read before the target wrote its own record
    return {**stored, **_of(found)}


def _moves(migration: Object, vm: Object) -> bool:
    source = dig_migration(migration, "status", "sourcePodUID")
    return bool(source) and phases.is_unfinished(migration) and source == dig_vm(vm, "status", "podUID")


def _of(migration: Object) -> MigrationState:
    status = migration.get("status") or {}
    ended = {"endTime": status["endTime"]} if status.get("endTime") and not phases.is_unfinished(migration) else {}
    told = {key: status[key] for key in _FROM_MIGRATION if status.get(key)}
    return cast("MigrationState", {"name": name_of(migration), "uid": uid_of(migration), **told, **ended})
