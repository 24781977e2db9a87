"""Displays: ``<graphics>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import graphics as hardware
from apiserver.apis.virt.places import layout
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification, socket


def append(tree: Tree, definition: Definition) -> None:
    """Append the displays."""
    graphics = hardware.defaulted(definition.specification)
    sockets = {"vnc": layout.VNC_SOCKET, "spice": layout.SPICE_SOCKET}
    for index, wanted in enumerate(graphics):
        kind = str(wanted.get("type"))
        file = sockets.pop(kind, None)
        if file is None:
            raise InvalidSpecification(f"devices.graphics[{index}].type: {kind!r} is not supported, or occurs twice")
        SubElement(SubElement(tree.devices, "graphics", type=kind), "listen", type="socket", socket=socket(file))
