"""The panic device: ``devices.panic``."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain


def meant(domain: Domain) -> Object:
    """Return ``devices.panic`` with ``model``."""
    return {"model": "isa", **(given.device(domain, "panic") or {})}
