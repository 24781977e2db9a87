"""The guest's memory: ``<maxMemory>``, ``<memory>``, ``<memoryBacking>``, and the balloon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from xml.etree.ElementTree import SubElement

from apiserver.apis.meta import quantity
from apiserver.apis.virt.hardware import filesystems, interfaces
from apiserver.apis.virt.hardware import memory as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification

SLOTS: Final = 16
"""Slots for memory modules of any size."""


def append(tree: Tree, definition: Definition) -> None:
    """Append the memory, its maximum and backing, and the balloon, or raise InvalidSpecification."""
    specification = definition.specification
    try:
        amount = hardware.guest_bytes(specification)
    except ValueError as error:
        raise InvalidSpecification(f"memory.guest: {error}") from error
    if amount < 1:
        raise InvalidSpecification(f"memory.guest: must be positive, not {amount} bytes")
    if (most := _most(definition)) > amount:
        SubElement(tree.domain, "maxMemory", slots=str(SLOTS), unit="b").text = str(most)
    SubElement(tree.domain, "memory", unit="b").text = str(amount)
    _append_backing(tree, specification)
    if not hardware.has_balloon(specification):
        SubElement(tree.devices, "memballoon", model="none")
        return
    balloon = SubElement(tree.devices, "memballoon", model="virtio", freePageReporting="on")
    SubElement(balloon, "stats", period="10")


def _append_backing(tree: Tree, specification: Mapping[str, Any]) -> None:
    """Append huge pages, and shared access if other processes of the pod need the memory."""
    size, is_shared = hardware.page_size(specification), _is_shared(specification)
    if size not in ("", "2Mi", "1Gi"):
        raise InvalidSpecification(f"memory.hugepages.pageSize: {size!r} is not supported")
    if not size and not is_shared:
        return
    backing = SubElement(tree.domain, "memoryBacking")
    if size:
        pages = SubElement(backing, "hugepages")
        SubElement(pages, "page", size=str(quantity.parse(size).bytes), unit="b")
    elif is_shared:  # huge pages are files already
        SubElement(backing, "source", type="memfd")
    if is_shared:
        SubElement(backing, "access", mode="shared")


def _is_shared(specification: Mapping[str, Any]) -> bool:
    """Return whether other processes of the pod map the guest's memory, to serve its file systems or its network."""
    return bool(filesystems.defaulted(specification) or interfaces.of_passt(specification))


def has_room(definition: Definition) -> bool:
    """Return whether the guest's memory can grow."""
    return _most(definition) > hardware.guest_bytes(definition.specification)


def _most(definition: Definition) -> int:
    try:
        return hardware.max_guest_bytes(definition.specification)
    except ValueError as error:
        raise InvalidSpecification(f"memory.maxGuest: {error}") from error
