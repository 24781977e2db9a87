"""Models and rules of ``cpu.numa``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import Field

from apiserver.apis.meta import quantity
from apiserver.apis.meta.schema import ATOMIC, Model, Quantity
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid
from apiserver.apis.virt.hardware import cpu, cpu_numa, features, memory
from apiserver.apis.virt.v1alpha1.domain.rules import NANOS, Object, validate_count

MAX_CELLS: Final = 64
_ACPI: Final = "requires features.acpi, because ACPI tables describe NUMA nodes"
MIN_CELL: Final = quantity.parse("16Mi")


class NUMACell(Model):
    """A NUMA node of the guest: processors and their local memory."""

    cpus: str = Field(
        description="Numbers of its processors, such as 0-3,8: counted from 0; threads of a core and cores of a socket have successive "
        "numbers. Each processor is in one NUMA node, including those of the empty sockets up to maxSockets."
    )
    memory: Quantity = Field(
        description="Its memory, 16Mi at least and whole Mi, or whole huge pages with hugepages. The sum is memory.guest."
    )


class NUMAGuestMappingPassthrough(Model):
    """Gives the guest the NUMA nodes of its dedicated processors."""


class NUMA(Model):
    """The guest's NUMA nodes. With several, Linux and Windows keep a process close to its memory."""

    cells: list[NUMACell] | None = Field(
        None,
        description="NUMA nodes of the guest, numbered in this order, independent of the host's. Default: one, with all processors and "
        "all memory.",
        json_schema_extra=ATOMIC,
    )
    guest_mapping_passthrough: NUMAGuestMappingPassthrough | None = Field(
        None,
        description="Replaces cells: the guest sees the host's NUMA nodes that its processors run on, each with memory in proportion to "
        "its processors. Needs dedicatedCpuPlacement and ordinary memory pages, because the kernel takes these from the node of the first "
        "processor that accesses them. Default: no.",
    )


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in the domain's ``cpu.numa``; ``path`` is that of ``cpu``."""
    path = path.child("numa")
    passed_through = _validate_pass_through(domain, path) if cpu_numa.is_passed_through(domain) else []
    return passed_through + _validate_cells(domain, path.child("cells"))


def _validate_pass_through(domain: Object, numa: Path) -> list[FieldError]:
    path, found = numa.child("guestMappingPassthrough"), []
    if cpu_numa.given(domain):
        found.append(forbidden(path, "may not be set with cells"))
    if not cpu.is_dedicated(domain):
        found.append(forbidden(path, "requires dedicatedCpuPlacement, because shared processors belong to no NUMA node"))
    if memory.page_size(domain):
        text = "may not be set with memory.hugepages: QEMU allocates all huge pages before the guest runs, from any NUMA node"
        found.append(forbidden(path, text))
    if not features.has_acpi(domain):
        found.append(forbidden(path, _ACPI))
    return found


def _validate_cells(domain: Object, path: Path) -> list[FieldError]:
    if not (given := cpu_numa.given(domain)):
        return []
    found = validate_count(given, MAX_CELLS, path)
    if not features.has_acpi(domain):
        found.append(forbidden(path, _ACPI))
    return found or [*_validate_cpus(domain, path), *_validate_memory(domain, path)]


def _validate_cpus(domain: Object, path: Path) -> Iterator[FieldError]:
    total, owners = cpu.max_vcpus(domain), dict[int, int]()
    readable = True
    for position, each in enumerate(cpu_numa.given(domain)):
        place, text = path.index(position).child("cpus"), str(each.get("cpus") or "")
        try:
            numbers = cpu_numa.numbers(text)
        except ValueError:
            yield invalid(place, text[:64], "must be numbers of processors such as 0-3,8")
            readable = False
            continue
        if beyond := [number for number in numbers if number >= total]:
            yield invalid(place, text, f"processor {cpu_numa.ranges(beyond)} does not exist: they are numbered from 0 to {total - 1}")
        if taken := [number for number in numbers if number in owners]:
            yield invalid(place, text, f"processor {cpu_numa.ranges(taken)} is also in cells[{owners[taken[0]]}]")
        owners.update({number: position for number in numbers if number not in owners})
    if readable and (missing := set(range(total)) - owners.keys()):
        yield invalid(path, cpu_numa.ranges(missing), "must contain all processors; these are missing")


def _validate_memory(domain: Object, path: Path) -> Iterator[FieldError]:
    size = memory.page_size(domain)
    unit = max(quantity.parse(size).bytes if size else 0, cpu_numa.MIB)
    total = quantity.parse("0Mi")
    for position, each in enumerate(cpu_numa.given(domain)):
        amount, place = quantity.parse(str(each.get("memory") or 0)), path.index(position).child("memory")
        total += amount
        if amount < MIN_CELL:
            yield invalid(place, str(each.get("memory")), f"must be greater than or equal to {MIN_CELL}")
        elif amount.nanos % (unit * NANOS):
            yield invalid(place, str(each["memory"]), f"must be a multiple of {f'memory.hugepages.pageSize, {size}' if size else '1Mi'}")
    if total.bytes != memory.guest_bytes(domain):
        yield invalid(path, str(total), f"the sum of memory must equal memory.guest, {domain['memory']['guest']}")
