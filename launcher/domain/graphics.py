"""Displays: ``<graphics>`` and ``<video>``, and the pointer that goes with them."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt import layout
from apiserver.apis.virt.hardware import graphics as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification, socket


def append(tree: Tree, definition: Definition) -> None:
    """Append the displays."""
    graphics, devices = hardware.meant(definition.specification), tree.devices
    sockets = {"vnc": layout.VNC_SOCKET, "spice": layout.SPICE_SOCKET}
    for index, wanted in enumerate(graphics):
        kind = str(wanted.get("type"))
        file = sockets.pop(kind, None)
        if file is None:
            raise InvalidSpecification(f"devices.graphics[{index}].type: {kind!r} is not supported, or there twice")
        SubElement(SubElement(devices, "graphics", type=kind), "listen", type="socket", socket=socket(file))
    if graphics:
        SubElement(SubElement(devices, "video"), "model", type="vga", vram="16384")
        SubElement(devices, "controller", type="usb", index="0", model="qemu-xhci")
        SubElement(devices, "input", type="tablet", bus="usb")  # absolute positions: the pointer is where the viewer's is
    else:
        SubElement(SubElement(devices, "video"), "model", type="none")
        SubElement(devices, "controller", type="usb", index="0", model="none")
