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
    """Return the processors of a machine that is to have them for itself, in their order; of others none.

    The kubelet's CPU manager gives a container a cpuset, which the kernel shows as the affinity of its processes.
    """
    return in_order(os.sched_getaffinity(0)) if cpu.is_dedicated(specification) else ()


def in_order(processors: Collection[int], topology: Path = TOPOLOGY) -> tuple[int, ...]:
    """Return processors with those of one node and core beside each other."""
    node = nodes(processors, topology)
    return tuple(sorted(processors, key=lambda processor: (node[processor], *_place(topology / f"cpu{processor}/topology"), processor)))


def nodes(processors: Iterable[int], topology: Path = TOPOLOGY) -> dict[int, int]:
    """Return the NUMA node of each processor; 0 where the node does not tell."""
    return {processor: _node(topology / f"cpu{processor}") for processor in processors}


def _node(directory: Path) -> int:
    """Return the number that the name of a link to the node has."""
    try:
        names = [each.name for each in directory.iterdir()]
    except OSError:
        return 0
    return min((int(match[1]) for name in names if (match := _NODE.fullmatch(name))), default=0)


def _place(directory: Path) -> tuple[int, int]:
    """Return (socket, core); the same for all where the node does not tell."""
    return _number(directory / "physical_package_id"), _number(directory / "core_id")


def _number(file: Path) -> int:
    try:
        text = file.read_text(encoding="ascii")[:_LARGEST]
        return int(text)
    except (OSError, ValueError):
        return 0
