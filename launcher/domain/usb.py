"""The USB controller: ``<controller type='usb'>``."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import SubElement

from launcher.domain.definition import Definition, Tree

_PORTS: Final = 4
"""A qemu-xhci's default."""
_MOST_PORTS: Final = 15


def append(tree: Tree, definition: Definition) -> None:
    """Append the USB controller, or ``none``, because libvirt would add one. Call it after all USB devices exist.

    It has a port for each device, or libvirt would put a slow hub (USB 1.1) on the fourth.
    """
    del definition
    devices = len(tree.devices.findall("*[@bus='usb']")) + len(tree.devices.findall("disk/target[@bus='usb']"))
    controller = SubElement(tree.devices, "controller", type="usb", index="0", model="qemu-xhci" if devices else "none")
    if devices > _PORTS:
        controller.set("ports", str(min(devices, _MOST_PORTS)))
