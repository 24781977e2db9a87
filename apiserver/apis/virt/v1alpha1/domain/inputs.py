"""Keyboards and pointers: ``devices.inputs``."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.hardware import inputs as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_count

MAX_INPUTS: Final = 8


class Input(Model):
    """A keyboard or pointer, besides the PS/2 ones of every PC."""

    type: hardware.Type = Field(
        description="Kind of device that the guest sees. A tablet reports the viewer's pointer position, a mouse only movements."
    )
    bus: hardware.Bus | None = Field(None, description="The device's bus. Default usb; virtio is for guests with its driver.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``devices.inputs``, below ``path``."""
    return validate_count(hardware.defaulted(domain), MAX_INPUTS, path.child("devices", "inputs"))
