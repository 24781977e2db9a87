"""Flags and memory for Go's compiler.

All Go programs of the tests are built with the same flags. Go's build cache keeps one result per package version and set of flags, so two
programs share the packages that they have in common.

Where memory is plentiful, the compiler collects no garbage, which takes a fifth of its time. ``GOGC=off`` alone would let a process grow
without end, so each process gets a limit at which it collects after all (``GOMEMLIMIT``, a soft one:
https://go.dev/doc/gc-guide#Memory_limit). ``go build`` runs as many of them as there are processors.
"""

import os
import pathlib
from collections.abc import Mapping

FLAGS = (
    "-mod=readonly",  # the versions are those of go.sum, never newer ones
    "-trimpath",
    "-gcflags=all=-dwarf=false",  # the linker strips debug information (-s -w), so the compiler need not write it: an eighth of its time
)
VARIABLES: Mapping[str, str] = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}

SHARE = 0.6  # of the memory that is available; the rest is for the page cache and whatever else runs
LEAST_BYTES = 1 << 30  # what one needs before it is worth while: most packages compile in less, the linker of Kubernetes in some more
_CGROUP = pathlib.Path("/sys/fs/cgroup")


def settings(available_bytes: int, processors: int, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for ``go build``; none where memory is scarce, or where the caller has decided (``given``)."""
    each = int(available_bytes * SHARE / max(processors, 1))
    if each < LEAST_BYTES or "GOGC" in given or "GOMEMLIMIT" in given:
        return {}
    return {"GOGC": "off", "GOMEMLIMIT": str(each)}


def environment() -> dict[str, str]:
    """Return :func:`settings` for this machine as it is now."""
    return settings(available(pathlib.Path("/proc/meminfo").read_text(), _cgroup()), os.cpu_count() or 1, os.environ)


def available(meminfo: str, cgroup: tuple[str, str] | None) -> int:
    """Return how many bytes may be taken, by /proc/meminfo, and by a cgroup's (limit, use), as a container has one."""
    lines = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    free = int(lines.get("MemAvailable", "0").split()[0]) << 10
    if cgroup is not None and cgroup[0].isdigit():
        free = min(free, max(int(cgroup[0]) - int(cgroup[1]), 0))
    return free


def _cgroup() -> tuple[str, str] | None:
    try:
        return (_CGROUP / "memory.max").read_text().strip(), (_CGROUP / "memory.current").read_text().strip()
    except OSError:  # the machine's own root cgroup has none
        return None
