"""``kubectl virt addvolume`` and ``removevolume``: edits of a machine's disks."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from apiserver.apis.meta.objects import Object, name_of
from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec import hot_plug
from apiserver.kubectl import editing
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure

COMMANDS: Final = ("addvolume", "removevolume")


async def edit(access: Access, parsed: argparse.Namespace) -> str:
    """Add or remove a disk; return the text for the user. Raises Failure."""
    if parsed.command == "removevolume":
        if not (parsed.claim or parsed.disk_name):
            raise Failure("error: name the disk by --claim or --disk-name")
        before = await _edit(access, parsed.name, lambda vm: without(vm, parsed.claim, parsed.disk_name))
        return f"virtualmachine.kubevirt.io/{parsed.name} edited{_loss(before, parsed.claim, parsed.disk_name)}"
    added = disk_of(parsed.claim, parsed.disk_name, parsed.serial, parsed.bus, parsed.create)
    await _edit(access, parsed.name, lambda vm: with_disk(vm, added))
    return (
        f"virtualmachine.kubevirt.io/{parsed.name} edited: its guest gets disk {added['name']} once PersistentVolumeClaim {parsed.claim} "
        f"exists and is free: kubectl get vm {parsed.name} -n {access.namespace} -o wide"
    )


def disk_of(claim: str, name: str | None, serial: str | None, bus: str | None, size: str | None) -> Object:
    """Return a disk with this claim, created blank if ``size`` is given; default name: the claim's with ``-`` for dots."""
    source = {"name": claim} | ({"create": {"size": size}} if size else {})
    found: Object = {"name": name or claim.replace(".", "-"), "type": disks.CLAIM, "source": source}
    return found | ({"serial": serial} if serial else {}) | ({"target": {"bus": bus}} if bus else {})


def with_disk(vm: Object, disk: Object) -> Object:
    """Return the machine with another disk, or a medium in its empty drive of this name. Raises Failure for a taken name or claim."""
    there, named = _disks(vm), disks.defaulted(dig_vm(vm, "spec", "domain") or {})
    claim = disk["source"]["name"]
    if owner := next((each["name"] for each in named if disks.claim_of(each) == claim.lower()), ""):
        raise Failure(f"error: PersistentVolumeClaim {claim} is already disk {owner} of virtual machine {name_of(vm)}")
    if place := [at for at, each in enumerate(named) if each["name"] == disk["name"]]:
        if disks.is_empty_drive(named[place[0]]) and disk.keys() <= {"name", "type", "source"}:
            there[place[0]] = there[place[0]] | disk
            return _with(vm, there)
        raise Failure(f"error: the machine has a disk {disk['name']} already; choose another --disk-name")
    return _with(vm, [*there, disk])


def without(vm: Object, claim: str | None, name: str | None) -> Object:
    """Return the machine without the disk of this claim and name (None: any); a drive only loses its medium.

    Raises Failure for none or several.
    """
    named = disks.defaulted(dig_vm(vm, "spec", "domain") or {})
    gone = [place for place, each in enumerate(named) if _is_meant(each, claim, name)]
    if not gone and (left := _unreleased(vm, claim, name)):
        restart = f"unmount it there and wait, or: kubectl virt restart {name_of(vm)}"
        raise Failure(f"error: the guest of virtual machine {name_of(vm)} has not released disk {left} yet: {restart}")
    if len(gone) != 1:
        what = "several such disks: choose one by --disk-name" if gone else "no such disk"
        there = ", ".join(each["name"] for each in named)
        raise Failure(f"error: virtual machine {name_of(vm)} has {what}; its disks: {there or 'none'}")
    # A name by position would change.
    kept = [{"name": each["name"], **own} for each, own in zip(named, _disks(vm), strict=True)]
    if disks.is_drive(named[gone[0]]) and not disks.is_empty_drive(named[gone[0]]):
        return _with(vm, [disks.without_medium(each) if place in gone else each for place, each in enumerate(kept)])
    return _with(vm, [each for place, each in enumerate(kept) if place not in gone])


def _is_meant(disk: Object, claim: str | None, name: str | None) -> bool:
    return (name is None or disk["name"] == name) and (claim is None or disks.claim_of(disk) == claim.lower())


def _unreleased(vm: Object, claim: str | None, name: str | None) -> str:
    if phases.phase_of(vm) not in phases.WITH_GUEST:
        return ""
    return next((str(each["name"]) for each in hot_plug.removed(vm) if _is_meant(each, claim, name)), "")


def _loss(vm: Object, claim: str | None, name: str | None) -> str:
    if phases.phase_of(vm) not in phases.WITH_GUEST:
        return ""
    if any(_is_meant(each, claim, name) for each in hot_plug.added(vm)):
        return ": the guest did not have it yet"
    return ": the guest loses the disk when it gives it back, at the latest at its next start"


async def _edit(access: Access, name: str, edited: Callable[[Object], Object]) -> Object:
    return await editing.edit(access, VIRTUAL_MACHINES, name, f"virtual machine {name}", edited)


def _disks(vm: Object) -> list[Object]:
    return [dict(each) for each in dig_vm(vm, "spec", "domain", "devices", "disks") or ()]


def _with(vm: Object, found: list[Object]) -> Object:
    domain = dig_vm(vm, "spec", "domain") or {}
    devices = {**(domain.get("devices") or {}), "disks": found}
    return {**vm, "spec": {**vm["spec"], "domain": {**domain, "devices": devices}}}
