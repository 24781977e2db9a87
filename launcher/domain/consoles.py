"""Serial ports: ``<serial>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt import layout
from apiserver.apis.virt.hardware import consoles as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import socket


def append(tree: Tree, definition: Definition) -> None:
    """Append the first serial port."""
    if hardware.meant(definition.specification):
        serial = SubElement(tree.devices, "serial", type="unix")
        SubElement(serial, "source", mode="bind", path=socket(layout.SERIAL_SOCKET))
        SubElement(serial, "target", port="0")
