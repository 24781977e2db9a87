"""Claims that a running machine locks for disks that its guest does not have yet (``docs/decisions/disks.md``).

virt-api keeps their names in ``status.running``. The edit that adds a disk reserves the disk's claim if no other machine has it. With the
record of the attachment pod, the guest has the lock. Until then, another machine that starts with the claim ends the reservation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.spec import disk_uses, hot_plug, running

KEEPING: Final = (None, hot_plug.POD_NOT_RUNNING, hot_plug.POD_SLOW, hot_plug.MIGRATING)
"""Reasons in ``status.volumeStatus`` of a disk that will attach without a change by a user.

A slow pod keeps the claim, because otherwise two machines would take a claim on slow storage from each other.
"""


def names(vm: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the reserved claims; none if the field is invalid."""
    found = dig_vm(vm, "status", running.RUNNING, running.RESERVED)
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, list) else ()


def uses(vm: Mapping[str, Any]) -> dict[str, disk_uses.Use]:
    """Return, by claim name, how the machine will use the reserved claims for which a disk still waits."""
    found = names(vm)
    return {claim: use for claim, use in _wanted(vm).items() if claim in found} if found else {}


def locks(vm: Mapping[str, Any]) -> frozenset[disk_uses.Lock]:
    """Return the locks on the claims of :func:`uses`."""
    return frozenset(disk_uses.lock_of_disk(claim, use) for claim, use in uses(vm).items())


def reserve(vm: Object, old: Mapping[str, Any], *, attaches: bool) -> None:
    """Set, in place, the reserved claims in ``status.running``; do nothing without it.

    These are the claims of disks that the guest can get only since this write, and those of ``old`` with disks that still wait; none if not
    ``attaches``: the machine's phase is not one in which it gets disks.
    """
    if not dig_vm(vm, "status", running.RUNNING):
        return
    wanted, before, kept = _wanted(vm) if attaches else {}, _wanted(old), names(old)
    _set(vm, sorted(claim for claim in wanted if claim in kept or claim not in before))


def without(vm: Object, claim: str) -> Object:
    """Return a copy of the machine without the reservation of ``claim``."""
    found = {**vm, "status": {**vm["status"]}}
    _set(found, [each for each in names(vm) if each != claim])
    return found


def _wanted(vm: Mapping[str, Any]) -> dict[str, disk_uses.Use]:
    """Return, by claim that the guest does not have yet, its use by disks to hot-plug that wait only for their pods."""
    changes = hot_plug.changes_of(vm)
    waits = {each.get("name") for each in hot_plug.entries(vm) if each.get("reason") not in KEEPING}
    coming = [each for each in hot_plug.added(vm) if each["name"] not in waits and hot_plug.is_supported(each, changes)]
    if not coming:
        return {}
    there = {lock.what for lock in disk_uses.locks(running.domains_of(vm)[1], "")}
    found = disk_uses.uses({"devices": {"disks": coming}})
    return {claim: use for claim, use in found.items() if disk_uses.lock_of_disk(claim, use).what not in there}


def _set(vm: Object, claims: list[str]) -> None:
    kept = {key: value for key, value in vm["status"][running.RUNNING].items() if key != running.RESERVED}
    vm["status"][running.RUNNING] = {**kept, running.RESERVED: claims} if claims else kept
