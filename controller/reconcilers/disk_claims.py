"""The claims of a virtual machine's disks, and those of them that are missing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.meta.objects import Object, dig, is_deleting
from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.hardware.described import domain_of

CLAIM: Final = "PersistentVolumeClaim"
IMAGE: Final = "Image"


def claim_of(disk: Object) -> str | None:
    """Return the claim a disk names, in lower case: Kubernetes admits no other names. None for other disks."""
    return str(dig(disk, "source", "name") or "").lower() if disk.get("type", CLAIM) == CLAIM else None


def claims_of(vm: Object) -> tuple[str, ...]:
    """Return the names of all claims of the machine's disks, each once, in order."""
    return tuple(dict.fromkeys(name for each in disks.meant(domain_of(vm)) if (name := claim_of(each))))


def missing(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that are absent or going away."""
    return tuple(name for name in claims_of(vm) if (claim := claims.get(name)) is None or is_deleting(claim))


def contested(vm: Object, other: Object) -> tuple[str, ...]:
    """Return the claims of which both machines have a disk, and one of them writes to it: QEMU locks the image."""
    mine, theirs = _written(vm), _written(other)
    return tuple(claim for claim, writes in mine.items() if claim in theirs and (writes or theirs[claim]))


def _written(vm: Object) -> dict[str, bool]:
    """Return whether each claim's guest may write to it."""
    meant = disks.meant(domain_of(vm))
    return {claim: not each["readOnly"] for each in meant if (claim := claim_of(each))}


def is_block(claim: Object | None) -> bool:
    """Return whether the claim is a device in the pod instead of a directory."""
    return bool(dig(claim, "spec", "volumeMode") == "Block")


def not_shared(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that two nodes cannot use at once, so that the guest cannot migrate."""
    return tuple(name for name in claims_of(vm) if "ReadWriteMany" not in (dig(claims.get(name), "spec", "accessModes") or ()))
