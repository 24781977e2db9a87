"""Firmware: ``firmware``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.hardware.given import Domain

EFI: Final[Object] = {"secureBoot": True, "persistent": False}
"""Defaults of ``bootloader.efi``."""
SYSTEM_FIELDS: Final = ("manufacturer", "product", "version", "sku", "family")
"""Names of the fields of ``system``, which are libvirt's of the strings in SMBIOS table 1."""


def efi(domain: Domain) -> Object | None:
    """Return ``bootloader.efi`` with ``secureBoot`` and ``persistent``; None: the machine has a BIOS."""
    said = dig(domain, "firmware", "bootloader", "efi")
    return None if said is None else {**EFI, **{key: value for key, value in said.items() if value is not None}}


def state_claim(domain: Domain) -> str:
    """Return the claim that keeps the state of firmware and TPM, in lower case: Kubernetes admits no other names. Empty: none does."""
    return str(dig(domain, "firmware", "persistentState", "claimName") or "").lower()


def state_directory(domain: Domain, uid: str) -> str:
    """Return the directory below the claim in which the state of this machine lies: its UUID where one is given, else ``uid``.

    Args:
        domain: ``spec.domain``.
        uid: the object's.
    """
    return str(dig(domain, "firmware", "uuid") or uid).lower()
