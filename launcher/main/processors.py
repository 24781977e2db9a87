"""The node's processors that this pod may use."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.hardware import cpu

TOPOLOGY: Final = Path("/sys/devices/system/cpu")
_LARGEST: Final = 16
"""Characters of a number in the topology."""
_NODE: Final = re.compile(r"node([0-9]{1,4})")


def look(
    specification: Mapping[str, Any], topology: Path = TOPOLOGY, affinity: Callable[[int], set[int]] = os.sched_getaffinity
) -> tuple[int, ...]:
    """Return the processors of a machine that is to have them for itself, those of one node and core beside each other; of others none.

    The kubelet's CPU manager gives a container a cpuset, which the kernel shows as the affinity of its processes.
    """
    if not cpu.is_dedicated(specification):
        return ()
    own = affinity(0)
    node = nodes(own, topology)
    return tuple(sorted(own, key=lambda processor: (node[processor], *_place(topology / f"cpu{processor}/topology"), processor)))


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
