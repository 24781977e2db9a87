"""The claims of a virtual machine, of its disks and of its firmware, and those of them that are missing. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from apiserver.apis.meta.objects import Object, dig, is_deleting, uid_of
from apiserver.apis.virt.described import domain_of
from apiserver.apis.virt.hardware import disks, firmware


def claims_of(vm: Object) -> tuple[str, ...]:
    """Return the names of all claims of the machine, those of its disks first, each once, in order."""
    domain = domain_of(vm)
    of_disks = [name for each in disks.defaulted(domain) if (name := disks.claim_of(each))]
    return tuple(dict.fromkeys(filter(None, (*of_disks, firmware.state_claim(domain)))))


def missing(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that are absent or going away."""
    return tuple(name for name in claims_of(vm) if (claim := claims.get(name)) is None or is_deleting(claim))


def contested(vm: Object, other: Object) -> tuple[str, ...]:
    """Return the claims of which both machines have a disk that one of them writes to, or the same directory for their firmware's state."""
    mine, theirs = _written(vm), _written(other)
    of_disks = [claim for claim, writes in mine.items() if claim in theirs and (writes or theirs[claim])]
    (state, _), same = _state(vm), _state(vm) == _state(other)
    return tuple(dict.fromkeys((*of_disks, state) if same and state else of_disks))


def _state(vm: Object) -> tuple[str, str]:
    """Return the claim that keeps the state of the machine's firmware, or an empty name, and the directory in it."""
    domain = domain_of(vm)
    return firmware.state_claim(domain), firmware.state_directory(domain, uid_of(vm))


def without_directory(vm: Object, claims: Mapping[str, Object | None]) -> str:
    """Return the claim that shall keep the state of the machine's firmware and is a device, or an empty string."""
    claim, _ = _state(vm)
    return claim if claim and is_block(claims.get(claim)) else ""


def _written(vm: Object) -> dict[str, bool]:
    """Return whether each claim's guest may write to it."""
    defaulted = disks.defaulted(domain_of(vm))
    return {claim: not (each["readOnly"] or disks.is_overlaid(each)) for each in defaulted if (claim := disks.claim_of(each))}


def is_block(claim: Object | None) -> bool:
    """Return whether the claim is a device in the pod instead of a directory."""
    return bool(dig(claim, "spec", "volumeMode") == "Block")


def not_shared(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that two nodes cannot use at once, so that the guest cannot migrate."""
    return tuple(name for name in claims_of(vm) if "ReadWriteMany" not in (dig(claims.get(name), "spec", "accessModes") or ()))
