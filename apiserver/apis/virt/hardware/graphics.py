"""Displays: ``devices.graphics``."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain


def defaulted(domain: Domain) -> list[Object]:
    """Return ``devices.graphics``; one display of type vnc where nothing is said."""
    return given.devices(domain, "graphics", [{"type": "vnc"}])
