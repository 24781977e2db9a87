"""The node's processors that this pod may use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.hardware import cpu

TOPOLOGY: Final = Path("/sys/devices/system/cpu")
_LARGEST: Final = 16
"""Characters of a number in the topology."""


def look(specification: Mapping[str, Any], topology: Path = TOPOLOGY) -> tuple[int, ...]:
    """Return the processors of a machine that is to have them for itself, those of one core beside each other; of others none.

    The kubelet's CPU manager gives a container a cpuset, which the kernel shows as the affinity of its processes.
    """
    if not cpu.is_dedicated(specification):
        return ()
    return tuple(sorted(os.sched_getaffinity(0), key=lambda processor: (*_place(topology / f"cpu{processor}/topology"), processor)))


def _place(directory: Path) -> tuple[int, int]:
    """Return (socket, core); the same for all where the node does not tell."""
    return _number(directory / "physical_package_id"), _number(directory / "core_id")


def _number(file: Path) -> int:
    try:
        text = file.read_text(encoding="ascii")[:_LARGEST]
        return int(text)
    except (OSError, ValueError):
        return 0
