"""The guest's memory: ``<memory>``, and the balloon."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import memory as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification


def append(tree: Tree, definition: Definition) -> None:
    """Append the memory."""
    try:
        amount = hardware.guest_bytes(definition.specification)
    except ValueError as error:
        raise InvalidSpecification(f"memory.guest: {error}") from error
    if amount < 1:
        raise InvalidSpecification(f"memory.guest: {amount} bytes are no memory")
    SubElement(tree.domain, "memory", unit="b").text = str(amount)
    balloon = SubElement(tree.devices, "memballoon", model="virtio", freePageReporting="on")
    SubElement(balloon, "stats", period="10")
