"""Serial ports: ``<serial>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import consoles as hardware
from apiserver.apis.virt.places import layout
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification, one_of, socket


def append(tree: Tree, definition: Definition) -> None:
    """Append the serial ports. Raises InvalidSpecification, also if there are too many."""
    for port, wanted in enumerate(hardware.defaulted(definition.specification)):
        if port >= layout.SERIAL_PORTS:
            raise InvalidSpecification(f"devices.consoles: a machine has at most {layout.SERIAL_PORTS}")
        one_of(("pty",), wanted.get("type", "pty"), f"devices.consoles[{port}].type")
        serial = SubElement(tree.devices, "serial", type="unix")
        SubElement(serial, "source", mode="bind", path=socket(layout.serial_socket(port)))
        SubElement(serial, "target", port=str(port))
