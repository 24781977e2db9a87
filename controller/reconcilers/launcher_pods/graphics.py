"""Displays: ``devices.graphics``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import graphics, video
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements

MAX_VIEW_BYTES: Final = 64 * MIB
"""5120x2160 pixels, the most that QEMU's VNC server shows, and space to send them."""


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the memory for the viewers' image: ``MAX_VIEW_BYTES``, at most the video card's; none without displays."""
    del claims
    if not graphics.defaulted(domain):
        return Requirements()
    return Requirements(overhead_bytes=min(video.vram_bytes(domain) or MAX_VIEW_BYTES, MAX_VIEW_BYTES))
