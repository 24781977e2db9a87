"""What prevents a live migration, as far as virt-controller knows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apiserver.apis.meta.objects import Object, condition
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.spec import hot_plug
from controller.reconcilers import disk_claims


@dataclass(frozen=True, slots=True)
class Barrier:
    """A reason why a guest cannot migrate."""

    reason: str
    message: str
    in_short: str


def barrier(vm: Object, claims: Mapping[str, Object | None]) -> Barrier | None:
    """Return the first Barrier to live migration, or None: condition Migratable=False, an import, or a claim that nodes cannot share.

    ``claims``: all of the machine, by name; None for a missing one, which counts as not shared.
    """
    if (found := conditions.false_condition(vm, conditions.MIGRATABLE)) is not None:
        reason, message = found.get("reason"), found.get("message")
        return Barrier(
            reason=str(reason or "NotMigratable"),
            message=str(message or "the virtual machine cannot migrate"),
            in_short=str(message or reason or "its condition Migratable is False"),
        )
    if importing := hot_plug.import_barrier(vm):  # virt-handler may not have written the condition yet
        return Barrier("NotMigratable", importing, importing)
    if lonely := disk_claims.not_shared(vm, claims):
        return Barrier(conditions.DISKS_NOT_SHARED, disk_claims.not_migratable(vm, claims), disk_claims.in_short(lonely))
    return None


def why_not(vm: Object, claims: Mapping[str, Object | None]) -> str:
    """Return why a machine cannot migrate, for users; empty if it can. Arguments as for :func:`barrier`."""
    ready = condition(dig_vm(vm, "status", "conditions"), conditions.READY) or {}
    if ready.get("reason") == conditions.LAUNCHER_NOT_UNDERSTOOD:
        return "its node's virt-handler and its virt-launcher have incompatible versions"
    found = barrier(vm, claims)
    return "" if found is None else found.in_short
