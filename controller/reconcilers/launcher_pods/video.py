"""The video card: ``devices.video``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import video
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs

VIRTIO_BYTES: Final = 264 * MIB
"""What a guest may have QEMU keep of its pictures (``max_hostmem`` of virtio-gpu), and the card's 8 MiB for text modes."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return the memory of the card; that of a viewer is the display's."""
    del claims
    return Needs(overhead_bytes=VIRTIO_BYTES if video.meant(domain)["type"] == "virtio" else video.vram_bytes(domain))
