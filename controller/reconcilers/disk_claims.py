"""The claims of a virtual machine, of its disks, file systems and firmware, and those of them that are missing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.apis.meta.objects import Object, dig, is_deleting, uid_of
from apiserver.apis.virt import disk_imports, disk_uses
from apiserver.apis.virt.described import domain_of
from apiserver.apis.virt.hardware import disks, filesystems, firmware


def claims_of(vm: Object) -> tuple[str, ...]:
    """Return the names of all claims of the machine, those of its disks first, each once, in order."""
    domain = domain_of(vm)
    of_disks = [name for each in disks.defaulted(domain) if (name := disks.claim_of(each))]
    return tuple(dict.fromkeys(filter(None, (*of_disks, *_of_filesystems(domain), firmware.state_claim(domain)))))


def _of_filesystems(domain: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether the guest may write to each claim that it has as a file system."""
    return {claim: not each["readOnly"] for each in filesystems.defaulted(domain) if (claim := filesystems.claim_of(each))}


def missing(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that are absent or going away."""
    return tuple(name for name in claims_of(vm) if (claim := claims.get(name)) is None or is_deleting(claim))


def contested(vm: Object, other: Object) -> tuple[str, ...]:
    """Return the claims that both machines cannot have at a time.

    They have a disk of it and do not share it (:mod:`apiserver.apis.virt.disk_uses`), or the same directory for their firmware's state, or
    it is a file system of one of them and such a disk, or state, of the other. File systems are for sharing.
    """
    mine, theirs = disk_uses.uses(domain_of(vm)), disk_uses.uses(domain_of(other))
    of_disks = [claim for claim, use in mine.items() if claim in theirs and disk_uses.clash(use, theirs[claim])]
    (state, _), same = _state(vm), _state(vm) == _state(other)
    of_both = (*of_disks, state) if same and state else tuple(of_disks)
    return tuple(dict.fromkeys((*of_both, *_seen_as_files(vm, other), *_seen_as_files(other, vm))))


def _seen_as_files(vm: Object, other: Object) -> list[str]:
    """Return the claims of which a machine has files, where one of these is a disk or the firmware's state of another one."""
    disks, state = disk_uses.uses(domain_of(other)), _state(other)[0]
    return [
        claim
        for claim, writes in _of_filesystems(domain_of(vm)).items()
        if claim == state or (claim in disks and (writes or disks[claim] != "reads"))
    ]


def _state(vm: Object) -> tuple[str, str]:
    """Return the claim that keeps the state of the machine's firmware, or an empty name, and the directory in it."""
    domain = domain_of(vm)
    return firmware.state_claim(domain), firmware.state_directory(domain, uid_of(vm))


def without_directory(vm: Object, claims: Mapping[str, Object | None]) -> str:
    """Return the claim that shall keep the state of the machine's firmware and is a device, or an empty string."""
    claim, _ = _state(vm)
    return claim if claim and is_block(claims.get(claim)) else ""


def filesystems_on_devices(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that shall be file systems of the guest and are devices."""
    return tuple(claim for claim in _of_filesystems(domain_of(vm)) if is_block(claims.get(claim)))


def imported_to_device(vm: Object, claims: Mapping[str, Object | None]) -> str:
    """Return a claim that an image shall be imported into and that is a device, or an empty string."""
    found = (disks.claim_of(each) or "" for each in disks.defaulted(domain_of(vm)) if disk_imports.of(each) is not None)
    return next((each for each in found if is_block(claims.get(each))), "")


def luns_without_device(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims whose SCSI device the guest shall have and that are directories."""
    found = (disks.claim_of(each) or "" for each in disks.defaulted(domain_of(vm)) if disks.is_lun(each))
    return tuple(claim for claim in found if not is_block(claims.get(claim)))


def is_block(claim: Object | None) -> bool:
    """Return whether the claim is a device in the pod instead of a directory."""
    return bool(dig(claim, "spec", "volumeMode") == "Block")


def not_shared(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that two nodes cannot use at once, so that the guest cannot migrate."""
    return tuple(name for name in claims_of(vm) if "ReadWriteMany" not in (dig(claims.get(name), "spec", "accessModes") or ()))
