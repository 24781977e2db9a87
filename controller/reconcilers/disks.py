"""The claims of a virtual machine's disks, and those of them that are missing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.meta.objects import Object, dig, is_deleting
from apiserver.apis.virt import hardware

CLAIM: Final = "PersistentVolumeClaim"
IMAGE: Final = "Image"


def disks_of(vm: Object) -> list[Object]:
    """Return ``spec.domain.devices.disks`` as they are meant."""
    return hardware.disks(dig(vm, "spec", "domain") or {})


def claim_of(disk: Object) -> str | None:
    """Return the claim a disk names, in lower case: Kubernetes admits no other names. None for other disks."""
    return str(dig(disk, "source", "name") or "").lower() if disk.get("type", CLAIM) == CLAIM else None


def claims_of(vm: Object) -> tuple[str, ...]:
    """Return the names of all claims of the machine's disks, each once, in order."""
    return tuple(dict.fromkeys(name for each in disks_of(vm) if (name := claim_of(each))))


def missing(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that are absent or going away."""
    return tuple(name for name in claims_of(vm) if (claim := claims.get(name)) is None or is_deleting(claim))


def is_block(claim: Object | None) -> bool:
    """Return whether the claim is a device in the pod instead of a directory."""
    return bool(dig(claim, "spec", "volumeMode") == "Block")


def not_shared(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that two nodes cannot use at once, so that the guest cannot migrate."""
    return tuple(name for name in claims_of(vm) if "ReadWriteMany" not in (dig(claims.get(name), "spec", "accessModes") or ()))
