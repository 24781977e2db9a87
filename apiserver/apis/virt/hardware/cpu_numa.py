"""Nodes of the guest's NUMA topology: ``cpu.numa``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import dig
from apiserver.apis.virt.hardware.given import Domain

MIB: Final = 1 << 20
"""libvirt rounds the memory of each node up to whole MiB, so that the guest would have more than was asked for."""
MIN_BYTES: Final = 16 * MIB
"""Of a node: Linux takes none for one that has less than 4 MiB."""
_RANGES: Final = re.compile(r"[0-9]{1,3}(-[0-9]{1,3})?(,[0-9]{1,3}(-[0-9]{1,3})?){0,255}")


@dataclass(frozen=True, slots=True)
class Cell:
    """A node: processors, and memory that is near to them."""

    cpus: tuple[int, ...]
    """Their numbers, in order."""
    bytes: int


def given(domain: Domain) -> list[dict[str, Any]]:
    """Return ``cpu.numa.cells`` as their author wrote them."""
    return list(((domain.get("cpu") or {}).get("numa") or {}).get("cells") or ())


def cells(domain: Domain) -> list[Cell]:
    """Return the nodes that were asked for; none: the guest sees one.

    Raises:
        ValueError: processors are not written as numbers, or memory not as a quantity.
    """
    return [Cell(numbers(str(each.get("cpus") or "")), quantity.parse(str(each.get("memory") or "")).bytes) for each in given(domain)]


def is_passed_through(domain: Domain) -> bool:
    """Return whether the guest is to have the nodes of the processors that it has for itself."""
    return dig(domain, "cpu", "numa", "guestMappingPassthrough") is not None


def following(nodes: Sequence[int], amount: int) -> list[Cell]:
    """Return the nodes of a guest whose processors are pinned.

    Each processor gets as much memory near to it as any other, up to a MiB; what is no whole MiB is in the last node.

    Args:
        nodes: the number of the host's node of each processor that one of the guest's runs on, in the order of the guest's.
        amount: bytes of memory.

    Raises:
        ValueError: the memory is too little for so many nodes.
    """
    members: dict[int, list[int]] = {}
    for cpu, node in enumerate(nodes):
        members.setdefault(node, []).append(cpu)
    found, before, given = [], 0, 0
    for cpus in members.values():
        before += len(cpus)
        until = amount if before == len(nodes) else amount // MIB * before // len(nodes) * MIB
        found.append(Cell(tuple(cpus), until - given))
        given = until
    if len(found) > 1 and min(each.bytes for each in found) < MIN_BYTES:
        raise ValueError(f"the pod's processors are of {len(found)} nodes, and {amount} bytes of memory make less than {MIN_BYTES} for one")
    return found


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers that ``0-3,8`` stands for, each once and in order.

    Raises:
        ValueError: it stands for none.
    """
    if not _RANGES.fullmatch(text):
        raise ValueError(f"{text[:64]!r} is no list of numbers such as 0-3,8")
    found: set[int] = set()
    for each in text.split(","):
        first, _, last = each.partition("-")
        if int(last or first) < int(first):
            raise ValueError(f"{each} ends before it begins")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def ranges(found: Iterable[int]) -> str:
    """Return numbers as :func:`numbers` reads them: ``0-3,8``."""
    runs = groupby(enumerate(sorted(found)), key=lambda each: each[1] - each[0])  # what counts up has one difference to its place
    return ",".join(_run([number for _, number in run]) for _, run in runs)


def _run(run: list[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"
