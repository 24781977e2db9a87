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
"""libvirt rounds each node's memory up to it, so other amounts would exceed the request."""
MIN_BYTES: Final = 16 * MIB
"""Linux ignores nodes with less than 4 MiB."""
_RANGES: Final = re.compile(r"[0-9]{1,3}(-[0-9]{1,3})?(,[0-9]{1,3}(-[0-9]{1,3})?){0,255}")


@dataclass(frozen=True, slots=True)
class Cell:
    """A NUMA node: processors and their local memory."""

    cpus: tuple[int, ...]
    bytes: int


def given(domain: Domain) -> list[dict[str, Any]]:
    """Return the items of ``cpu.numa.cells`` as written."""
    return list(((domain.get("cpu") or {}).get("numa") or {}).get("cells") or ())


def cells(domain: Domain) -> list[Cell]:
    """Return the NUMA nodes in ``cpu.numa.cells``. Empty: the guest sees one, or those of its host (:func:`is_passed_through`).

    Raises:
        ValueError: processors are not numbers, or memory is not a quantity.
    """
    return [Cell(numbers(str(each.get("cpus") or "")), quantity.parse(str(each.get("memory") or "")).bytes) for each in given(domain)]


def is_passed_through(domain: Domain) -> bool:
    """Return whether the guest gets the NUMA nodes of its dedicated processors."""
    return dig(domain, "cpu", "numa", "guestMappingPassthrough") is not None


def following(nodes: Sequence[int], amount: int) -> list[Cell]:
    """Return a ``Cell`` per NUMA node of a guest with pinned processors and ``amount`` bytes of memory.

    Each processor gets the same local memory, up to a MiB; the last node gets the remainder. ``nodes``: the host's NUMA node of each
    processor, in the guest's order.

    Raises:
        ValueError: there is too little memory for so many nodes.
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
        raise ValueError(
            f"the pod's processors are on {len(found)} NUMA nodes, and {amount} bytes of memory give less than {MIN_BYTES} for one of them"
        )
    return found


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in ``0-3,8``, sorted and unique.

    Raises:
        ValueError: the text is invalid.
    """
    if not _RANGES.fullmatch(text):
        raise ValueError(f"{text[:64]!r} is not a list of numbers such as 0-3,8")
    found: set[int] = set()
    for each in text.split(","):
        first, _, last = each.partition("-")
        if int(last or first) < int(first):
            raise ValueError(f"{each} is not an ascending range")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def ranges(found: Iterable[int]) -> str:
    """Return numbers, each given once, as text for :func:`numbers`: ``0-3,8``."""
    # consecutive numbers have the same difference to their position
    runs = groupby(enumerate(sorted(found)), key=lambda each: each[1] - each[0])
    return ",".join(_run([number for _, number in run]) for _, run in runs)


def _run(run: list[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"
