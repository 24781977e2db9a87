"""Displays: ``devices.graphics``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import graphics, video
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs

MAX_VIEW_BYTES: Final = 64 * MIB
"""The largest displayed image: 5120x2160 pixels (QEMU's VNC server cuts the rest), and space to send it."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return the memory of the viewers' image, which is at most the card's memory."""
    del claims
    if not graphics.defaulted(domain):
        return Needs()
    return Needs(overhead_bytes=min(video.vram_bytes(domain) or MAX_VIEW_BYTES, MAX_VIEW_BYTES))
