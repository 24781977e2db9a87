"""Displays: ``devices.graphics``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.hardware import graphics as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_count, validate_unique


class Graphics(Model):
    """One graphical display."""

    type: Literal["vnc", "spice"] = Field(description="The display's protocol.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``devices.graphics``, below ``path``."""
    graphics, path = hardware.defaulted(domain), path.child("devices", "graphics")
    return validate_count(graphics, hardware.MAX_GRAPHICS, path) + validate_unique(graphics, "type", path)
