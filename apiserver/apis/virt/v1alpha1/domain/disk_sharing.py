"""Disks that several machines use at once: ``shareable`` of a disk."""

from __future__ import annotations

from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid
from apiserver.apis.virt.hardware import disks as hardware
from apiserver.apis.virt.hardware import network_disks
from apiserver.apis.virt.v1alpha1.domain.rules import Object


def validate(disk: Object, path: Path) -> list[FieldError]:
    """Return errors of a shareable disk from ``hardware.disks.defaulted``, also in ``driver.cache``; none for others."""
    if not disk.get("shareable"):
        return []
    found = []
    if why := _why_not(disk):
        found.append(forbidden(path.child("shareable"), why))
    if hardware.is_cached(disk):  # libvirt refuses it: a page cache misses writes of other nodes
        found.append(invalid(path.child("driver", "cache"), disk["driver"]["cache"], "must be none or directsync for a shareable disk"))
    return found


def _why_not(disk: Object) -> str:
    source = disk.get("source") or {}
    if disk["device"] == "cdrom":
        return "may not be set for a cdrom"
    if disk.get("type") != hardware.CLAIM and not network_disks.is_network(disk):
        return f"may not be set for a disk of type {disk.get('type')}"
    if source.get("ephemeral"):
        return "may not be set with source.ephemeral, because other machines do not see the guest's writes"
    return "may not be set with source.import, because an imported image belongs to one machine" if source.get("import") else ""
