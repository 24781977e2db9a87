"""The panic device: ``devices.panic``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.hardware import panic as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object


class Panic(Model):
    """The device by which the guest's kernel reports a panic, which ends the attempt."""

    model: hardware.Model | None = Field(
        None,
        description="The device. Default isa, QEMU's pvpanic on ISA and PCI. none: panics are not reported; a kernel that reboots after a "
        "panic (panic=) does so in its pod. Without a driver for pvpanic in the guest, a panicked guest counts as running.",
    )


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return no errors: the schema checks everything."""
    del domain, path
    return []
