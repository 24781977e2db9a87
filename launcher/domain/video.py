"""The video card: ``<video>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import video as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification, number, one_of


def append(tree: Tree, definition: Definition) -> None:
    """Append the video card, or ``none`` explicitly."""
    specification = definition.specification
    video = hardware.defaulted(specification)
    kind = one_of(hardware.TYPES, video["type"], "devices.video.type")
    model = SubElement(SubElement(tree.devices, "video"), "model", type=kind)
    if kind in hardware.WITH_VRAM:
        try:
            amount = hardware.vram_bytes(specification)
        except ValueError as error:
            raise InvalidSpecification(f"devices.video.vram: {error}") from error
        model.set("vram", number(amount // 1024, 1, hardware.MAX_VRAM.bytes // 1024, "devices.video.vram"))  # libvirt's unit
    elif kind == "virtio":
        model.set("heads", number(video.get("heads", 1), 1, hardware.MAX_HEADS, "devices.video.heads"))
