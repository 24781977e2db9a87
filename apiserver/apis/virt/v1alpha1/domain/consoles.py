"""Serial ports: ``devices.consoles``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.hardware import consoles as hardware
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_count


class Console(Model):
    """One serial port."""

    type: Literal["pty"] = Field(description="The port's backend; pty is the only one.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``devices.consoles``, below ``path``."""
    return validate_count(hardware.defaulted(domain), layout.SERIAL_PORTS, path.child("devices", "consoles"))
