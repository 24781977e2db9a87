"""Nodes of the guest's NUMA topology: ``cpu.numa``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from apiserver.apis.meta import quantity
from apiserver.apis.virt.hardware.given import Domain

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
