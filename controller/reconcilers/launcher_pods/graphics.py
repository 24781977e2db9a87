"""Displays: ``devices.graphics``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import graphics
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs

GRAPHICS_BYTES: Final = 32 * MIB
"""16 MiB of video memory, and as much for a VNC client's view of it."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return the memory of a display."""
    del claims
    return Needs(overhead_bytes=GRAPHICS_BYTES) if graphics.meant(domain) else Needs()
