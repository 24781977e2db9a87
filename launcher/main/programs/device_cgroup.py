"""The device cgroup of this container."""

from __future__ import annotations

from pathlib import Path


def is_version_1(own: Path = Path("/proc/self/cgroup")) -> bool:
    """Return whether virt-handler can let this container open further devices: version 1 of the device cgroup is in use."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return False
    return any("devices" in line.split(":", 2)[1].split(",") for line in lines)
