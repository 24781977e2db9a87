"""Nodes of the guest's NUMA topology: ``<numa>``."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt.hardware import cpu, cpu_numa
from apiserver.apis.virt.hardware import memory as memory_fields
from launcher.domain import memory
from launcher.domain.definition import Definition
from launcher.domain.values import InvalidSpecification


def append(parent: Element, definition: Definition) -> None:
    """Append the NUMA nodes, if any, to ``<cpu>``. Raises InvalidSpecification unless they have each processor once, and all memory."""
    if not (cells := _cells(definition)):
        return
    numa = SubElement(parent, "numa")
    for index, cell in enumerate(cells):
        SubElement(numa, "cell", id=str(index), cpus=cpu_numa.ranges(cell.cpus), unit="b", memory=str(cell.bytes))


def _cells(definition: Definition) -> list[cpu_numa.Cell]:
    specification = definition.specification
    if cpu_numa.is_passed_through(specification):
        return _following(definition)
    every, amount = range(cpu.max_vcpus(specification)), memory_fields.guest_bytes(specification)
    try:
        cells = cpu_numa.cells(specification)
    except ValueError as error:
        raise InvalidSpecification(f"cpu.numa.cells: {error}") from error
    if cells and sorted(number for each in cells for number in each.cpus) != list(every):
        raise InvalidSpecification(f"cpu.numa.cells: they must contain each of the {len(every)} processors exactly once")
    if cells and (min(each.bytes for each in cells) < 1 or sum(each.bytes for each in cells) != amount):
        raise InvalidSpecification(f"cpu.numa.cells: their memory must add up to the guest's, {amount} bytes")
    if not cells and memory.has_room(definition):  # libvirt requires a node for memory that can grow
        return [cpu_numa.Cell(tuple(every), amount)]
    return cells


def _following(definition: Definition) -> list[cpu_numa.Cell]:
    """Return the guest's NUMA cells: one per host node with processors that the guest's are pinned to."""
    specification = definition.specification
    if not cpu.is_dedicated(specification):
        raise InvalidSpecification("cpu.numa.guestMappingPassthrough: needs dedicatedCpuPlacement")
    own = definition.processors[: cpu.vcpus(specification)]
    try:
        return cpu_numa.following([definition.nodes.get(each, 0) for each in own], memory_fields.guest_bytes(specification))
    except ValueError as error:
        raise InvalidSpecification(f"cpu.numa.guestMappingPassthrough: {error}") from error
