"""Limits of what a guest may read and write: ``ioTune`` of a disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta import quantity

_DIRECTIONS: Final = ("total", "read", "write")
BYTES: Final = tuple(f"{direction}BytesSec{burst}" for burst in ("", "Max") for direction in _DIRECTIONS)
"""Limits that are quantities of bytes."""
IOPS: Final = tuple(f"{direction}IopsSec{burst}" for burst in ("", "Max") for direction in _DIRECTIONS)
"""Limits that are numbers of requests."""


def limits(disk: Mapping[str, Any]) -> dict[str, int]:
    """Return the limits of a disk, in bytes and requests a second.

    Raises:
        ValueError: what is given is no quantity or number.
    """
    said = disk.get("ioTune") or {}
    return {
        name: quantity.parse(str(said[name])).bytes if name in BYTES else int(said[name])
        for name in (*BYTES, *IOPS)
        if said.get(name) is not None
    }
