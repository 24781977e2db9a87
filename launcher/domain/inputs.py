"""Keyboards and pointers: ``<input>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import inputs as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import one_of


def append(tree: Tree, definition: Definition) -> None:
    """Append the input devices."""
    for index, wanted in enumerate(hardware.defaulted(definition.specification)):
        path = f"devices.inputs[{index}]"
        kind = one_of(hardware.TYPES, wanted.get("type"), f"{path}.type")
        SubElement(tree.devices, "input", type=kind, bus=one_of(hardware.BUSES, wanted["bus"], f"{path}.bus"))
