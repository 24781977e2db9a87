"""The sound card: ``devices.sound``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.hardware import sound as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object


class Sound(Model):
    """A sound card. Only spice displays transmit its sound."""

    model: hardware.Model | None = Field(None, description="The emulated card. Default ich9; ac97 is for older guests.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return no errors: the schema checks everything."""
    del domain, path
    return []
