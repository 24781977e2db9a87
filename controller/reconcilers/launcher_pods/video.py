"""The video card: ``devices.video``."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import video
from controller.reconcilers.launcher_pods.requirements import Claims, Requirements


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the memory of the video card; ``graphics.requirements`` adds that of the viewers' image."""
    del claims
    return Requirements(overhead_bytes=video.VIRTIO_BYTES if video.defaulted(domain)["type"] == "virtio" else video.vram_bytes(domain))
