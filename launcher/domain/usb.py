"""The USB controller: ``<controller type='usb'>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from launcher.domain.definition import Definition, Tree


def append(tree: Tree, definition: Definition) -> None:
    """Append the controller where a device needs one; to be called when these are there. Unsaid, libvirt would append one by itself."""
    del definition
    model = "qemu-xhci" if tree.devices.find("*[@bus='usb']") is not None else "none"
    SubElement(tree.devices, "controller", type="usb", index="0", model=model)
