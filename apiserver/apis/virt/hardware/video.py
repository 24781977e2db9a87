"""The video card: ``devices.video``."""

from __future__ import annotations

from typing import Final, Literal, get_args

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given, graphics
from apiserver.apis.virt.hardware.given import Domain

Type = Literal["vga", "bochs", "virtio", "none"]
TYPES: Final = get_args(Type)

WITH_VRAM: Final = ("vga", "bochs")
"""Their memory has a configurable size."""
VRAM: Final = "16Mi"
MIN_VRAM: Final = quantity.parse("4Mi")
MAX_VRAM: Final = quantity.parse("256Mi")
MAX_HEADS: Final = 4
VIRTIO_BYTES: Final = 264 << 20
"""Upper bound of QEMU's memory for a virtio card: the guest's images (``max_hostmem`` of virtio-gpu), and 8 MiB for text modes."""


def defaulted(domain: Domain) -> Object:
    """Return ``devices.video`` with ``type``; by default vga with a display, else none."""
    return {"type": "vga" if graphics.defaulted(domain) else "none", **(given.device(domain, "video") or {})}


def compared(domain: Domain) -> Object:
    """Return :func:`defaulted` with the memory in bytes, for comparisons."""
    return {"heads": 1, **defaulted(domain), "vram": vram_bytes(domain)}


def vram_bytes(domain: Domain) -> int:
    """Return the card's own memory in bytes; 0 without any."""
    video = defaulted(domain)
    return quantity.parse(str(video.get("vram", VRAM))).bytes if video["type"] in WITH_VRAM else 0
