"""The emulated machine: ``machine``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path, invalid
from apiserver.apis.virt.hardware import machine as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object


class Machine(Model):
    """The emulated machine."""

    type: str | None = Field(None, description=f"The machine type: {hardware.TYPES_IN_WORDS}. Default {hardware.TYPE}.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``machine``, below ``path``, of a domain with defaults."""
    kind = domain["machine"]["type"]
    if kind in hardware.TYPES:
        return []
    return [invalid(path.child("machine", "type"), kind, f"must be one of {hardware.TYPES_IN_WORDS}")]
