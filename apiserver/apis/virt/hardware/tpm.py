"""Trusted Platform Module: ``devices.tpm``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.hardware.given import Domain

TPM: Final[Object] = {"persistent": False}
"""Defaults of ``devices.tpm``."""


def defaulted(domain: Domain) -> Object | None:
    """Return a copy of ``devices.tpm`` with the default of ``persistent``; None if it is unset."""
    said = dig(domain, "devices", "tpm")
    return None if said is None else {**TPM, **{key: value for key, value in said.items() if value is not None}}
