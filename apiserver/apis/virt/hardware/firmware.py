"""Firmware: ``firmware``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.hardware.given import Domain

EFI: Final[Object] = {"secureBoot": True, "persistent": False}
"""Defaults of ``bootloader.efi``."""
SYSTEM_FIELDS: Final = ("manufacturer", "product", "version", "sku", "family")
"""Named as libvirt's strings of SMBIOS table 1."""


def efi(domain: Domain) -> Object | None:
    """Return ``bootloader.efi`` with ``secureBoot`` and ``persistent``; None for a BIOS."""
    said = dig(domain, "firmware", "bootloader", "efi")
    return None if said is None else {**EFI, **{key: value for key, value in said.items() if value is not None}}


def state_claim(domain: Domain) -> str:
    """Return the name of the claim for the state of firmware and TPM, in lower case, or ""."""
    return str(dig(domain, "firmware", "persistentState", "claimName") or "").lower()


def state_directory(domain: Domain, uid: str) -> str:
    """Return the name of the machine's directory in the claim for firmware state: its specified UUID, else the object's ``uid``."""
    return str(dig(domain, "firmware", "uuid") or uid).lower()
