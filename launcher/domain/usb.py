"""The USB controller: ``<controller type='usb'>``."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import SubElement

from launcher.domain.definition import Definition, Tree

_PORTS: Final = 4
"""Of a qemu-xhci of which nothing is said."""
_MOST_PORTS: Final = 15


def append(tree: Tree, definition: Definition) -> None:
    """Append the controller where a device needs one; to be called when these are there. Unsaid, libvirt would append one by itself.

    It has a port for each device: libvirt would put a hub behind the fourth, and behind that one every device is a slow one (USB 1.1).
    """
    del definition
    devices = len(tree.devices.findall("*[@bus='usb']")) + len(tree.devices.findall("disk/target[@bus='usb']"))
    controller = SubElement(tree.devices, "controller", type="usb", index="0", model="qemu-xhci" if devices else "none")
    if devices > _PORTS:
        controller.set("ports", str(min(devices, _MOST_PORTS)))
