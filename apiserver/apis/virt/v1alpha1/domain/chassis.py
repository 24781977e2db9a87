"""Models and rules of ``chassis``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.hardware import chassis as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_smbios


class Chassis(Model):
    """The chassis in the guest's SMBIOS tables."""

    manufacturer: str | None = Field(None, description="Its maker. Default QEMU.")
    version: str | None = Field(None, description="Its version. Default the machine type.")
    serial: str | None = Field(None, description="Its serial number.")
    asset: str | None = Field(None, description="Its asset tag.")
    sku: str | None = Field(None, description="Its stock-keeping unit.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``chassis``, below ``path``."""
    return validate_smbios(domain.get("chassis") or {}, hardware.FIELDS, path.child("chassis"))
