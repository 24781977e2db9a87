"""The video card: ``devices.video``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given, graphics
from apiserver.apis.virt.hardware.given import Domain

WITH_VRAM: Final = ("vga", "bochs")
"""Types of cards with memory of a size that can be chosen."""
VRAM: Final = "16Mi"
VIRTIO_BYTES: Final = 264 << 20
"""Upper bound of what QEMU keeps for a virtio card: the guest's pictures (``max_hostmem`` of virtio-gpu), and 8 MiB for text modes."""


def meant(domain: Domain) -> Object:
    """Return ``devices.video`` with ``type``; a card where there is a display."""
    return {"type": "vga" if graphics.meant(domain) else "none", **(given.device(domain, "video") or {})}


def compared(domain: Domain) -> Object:
    """Return :func:`meant` with the memory in bytes: for comparisons."""
    return {"heads": 1, **meant(domain), "vram": vram_bytes(domain)}


def vram_bytes(domain: Domain) -> int:
    """Return the memory of a card that has memory of its own, else 0.

    Raises:
        ValueError: what is given is no quantity.
    """
    video = meant(domain)
    return quantity.parse(str(video.get("vram", VRAM))).bytes if video["type"] in WITH_VRAM else 0
