"""The panic device: ``devices.panic``."""

from __future__ import annotations

from typing import Final, Literal, get_args

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain

Model = Literal["isa", "none"]
MODELS: Final = get_args(Model)


def defaulted(domain: Domain) -> Object:
    """Return ``devices.panic`` with its default ``model``; if it is unset, only this."""
    return {"model": "isa", **(given.device(domain, "panic") or {})}
