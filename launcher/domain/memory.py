"""The guest's memory: ``<maxMemory>``, ``<memory>``, ``<memoryBacking>``, and the balloon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from xml.etree.ElementTree import SubElement

from apiserver.apis.meta import quantity
from apiserver.apis.virt.hardware import memory as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification

SLOTS: Final = 16
"""For memory modules of any size."""


def append(tree: Tree, definition: Definition) -> None:
    """Append the memory, its maximum and backing, and the balloon."""
    specification = definition.specification
    try:
        amount = hardware.guest_bytes(specification)
    except ValueError as error:
        raise InvalidSpecification(f"memory.guest: {error}") from error
    if amount < 1:
        raise InvalidSpecification(f"memory.guest: must be positive, not {amount} bytes")
    if (most := _most(definition)) > amount:
        SubElement(tree.domain, "maxMemory", slots=str(SLOTS), unit="b").text = str(most)
    plugged = hardware.pluggable_bytes(specification)
    SubElement(tree.domain, "memory", unit="b").text = str(amount + plugged)
    if plugged:
        _append_device(tree, plugged)
    _append_backing(tree, specification)
    if not hardware.has_balloon(specification):
        SubElement(tree.devices, "memballoon", model="none")
        return
    balloon = SubElement(tree.devices, "memballoon", model="virtio", freePageReporting="on")
    SubElement(balloon, "stats", period="10")


def _append_device(tree: Tree, amount: int) -> None:
    target = SubElement(SubElement(tree.devices, "memory", model="virtio-mem"), "target")
    SubElement(target, "size", unit="b").text = str(amount)
    SubElement(target, "node").text = "0"
    SubElement(target, "block", unit="b").text = str(hardware.BLOCK_BYTES)
    SubElement(target, "requested", unit="b").text = "0"


def _append_backing(tree: Tree, specification: Mapping[str, Any]) -> None:
    size, is_shared = hardware.page_size(specification), hardware.is_shared(specification)
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


def has_room(definition: Definition) -> bool:
    """Return whether the guest's memory can grow (``memory.maxGuest``)."""
    return _most(definition) > hardware.guest_bytes(definition.specification)


def _most(definition: Definition) -> int:
    try:
        return hardware.max_guest_bytes(definition.specification)
    except ValueError as error:
        raise InvalidSpecification(f"memory.maxGuest: {error}") from error
