"""What is in the way of a live migration, as far as virt-controller knows. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from apiserver.apis.meta.objects import Object, condition, dig
from apiserver.apis.virt import conditions as words
from controller.reconcilers import disk_claims


def why_not(vm: Object, claims: Mapping[str, Object | None]) -> str:
    """Return why a machine cannot migrate, for people; an empty string for one that can.

    Args:
        vm: the machine.
        claims: those of its disks, by name.
    """
    ready = condition(dig(vm, "status", "conditions"), words.READY) or {}
    if ready.get("reason") == words.LAUNCHER_NOT_UNDERSTOOD:
        return "virt-handler of its node does not understand its virt-launcher"
    found = condition(dig(vm, "status", "conditions"), words.MIGRATABLE)
    if found is not None and found.get("status") == "False":
        return str(found.get("message") or found.get("reason") or "its condition Migratable is False")
    if lonely := disk_claims.not_shared(vm, claims):
        return f"PersistentVolumeClaim {', '.join(lonely)} is not ReadWriteMany"
    return ""
