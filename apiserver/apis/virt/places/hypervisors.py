"""Decides whether a node may be a virtual machine. Its hypervisor could then pause it, with all clocks. Pure."""

from __future__ import annotations

from typing import Final

FLAG: Final = "hypervisor"
"""In ``/proc/cpuinfo``: the CPUID bit that hypervisors set for their guests."""


def may_be_virtual(cpuinfo: str) -> bool:
    """Return whether ``/proc/cpuinfo`` may be a virtual machine's: a processor has the flag, or none lists flags, as on arm64."""
    flags = [line.partition(":")[2].split() for line in cpuinfo.splitlines() if line.startswith("flags")]
    return not flags or any(FLAG in each for each in flags)
