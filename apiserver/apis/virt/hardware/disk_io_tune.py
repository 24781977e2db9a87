"""I/O limits of a disk: ``ioTune``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta import quantity

_DIRECTIONS: Final = ("total", "read", "write")
BYTES: Final = tuple(f"{direction}BytesSec{burst}" for burst in ("", "Max") for direction in _DIRECTIONS)
"""Limits as quantities of bytes."""
IOPS: Final = tuple(f"{direction}IopsSec{burst}" for burst in ("", "Max") for direction in _DIRECTIONS)
"""Limits as numbers of requests."""
NAMES: Final = (*BYTES, *IOPS)


def text(limits: Mapping[str, int]) -> str:
    """Return limits as text, equal for equal limits; 0 means none, as in libvirt."""
    return " ".join(f"{name}={limits[name]}" for name in NAMES if limits.get(name))


def limits(disk: Mapping[str, Any]) -> dict[str, int]:
    """Return the limits of a disk's ``ioTune`` by name, in bytes or requests per second.

    Raises:
        ValueError: a limit is not a quantity or number.
    """
    said = disk.get("ioTune") or {}
    return {
        name: quantity.parse(str(said[name])).bytes if name in BYTES else int(said[name]) for name in NAMES if said.get(name) is not None
    }
