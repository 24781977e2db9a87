"""The guest's memory: ``memory``."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from apiserver.apis.meta import quantity
from apiserver.apis.meta.schema import Model, Quantity
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_amount

MIN: Final = quantity.parse("16Mi")
MAX: Final = quantity.parse("16Ti")


class Memory(Model):
    """The guest's memory."""

    guest: Quantity | None = Field(None, description="What the guest gets to see, 16Mi at least. Default 512Mi.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return what is wrong with ``memory``."""
    return validate_amount(domain["memory"]["guest"], MIN, MAX, path.child("memory", "guest"))
