"""Displays: ``devices.graphics``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain

MAX_GRAPHICS: Final = 2
"""Of a machine, and so of what its status tells of them."""


def defaulted(domain: Domain) -> list[Object]:
    """Return ``devices.graphics``; one display of type vnc where nothing is said."""
    return given.devices(domain, "graphics", [{"type": "vnc"}])
