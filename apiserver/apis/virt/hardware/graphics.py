"""Displays: ``devices.graphics``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain

MAX_GRAPHICS: Final = 2
"""Also the limit in a status."""


def defaulted(domain: Domain) -> list[Object]:
    """Return ``devices.graphics``; by default one of type vnc."""
    return given.devices(domain, "graphics", [{"type": "vnc"}])
