"""The node's processors that this pod may use."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.hardware import cpu

TOPOLOGY: Final = Path("/sys/devices/system/cpu")
_LARGEST: Final = 16
"""Characters of a number in the topology."""
_NODE: Final = re.compile(r"node([0-9]{1,4})")


def look(specification: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the processors that the kubelet gave a machine with dedicated ones, in order; else none."""
    return in_order(os.sched_getaffinity(0)) if cpu.is_dedicated(specification) else ()


def in_order(processors: Collection[int], topology: Path = TOPOLOGY) -> tuple[int, ...]:
    """Return processors sorted by NUMA node and core, so siblings are adjacent."""
    node = nodes(processors, topology)
    return tuple(sorted(processors, key=lambda processor: (node[processor], *_place(topology / f"cpu{processor}/topology"), processor)))


def nodes(processors: Iterable[int], topology: Path = TOPOLOGY) -> dict[int, int]:
    """Return the NUMA node by processor; 0 if unknown."""
    return {processor: _node(topology / f"cpu{processor}") for processor in processors}


def _node(directory: Path) -> int:
    try:
        names = [each.name for each in directory.iterdir()]
    except OSError:
        return 0
    return min((int(match[1]) for name in names if (match := _NODE.fullmatch(name))), default=0)


def _place(directory: Path) -> tuple[int, int]:
    return _number(directory / "physical_package_id"), _number(directory / "core_id")


def _number(file: Path) -> int:
    try:
        text = file.read_text(encoding="ascii")[:_LARGEST]
        return int(text)
    except (OSError, ValueError):
        return 0
