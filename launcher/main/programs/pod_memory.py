"""Memory that this container may still use, and whether it lacked memory, from its cgroup.

See the kernel's ``Documentation/admin-guide/cgroup-v2.rst`` and ``cgroup-v1/memory.rst``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final


@dataclass(frozen=True, slots=True)
class _Version:
    """File names of one cgroup version, and the counters of page cache in its ``memory.stat``."""

    controller: str
    """As in ``/proc/PID/cgroup``."""
    directory: str
    limit: str
    usage: str
    kills: str
    """Its line ``oom_kill`` counts processes that the kernel killed for lack of memory."""
    of_files: frozenset[str]


_VERSIONS: Final = (
    _Version("", "", "memory.max", "memory.current", "memory.events", frozenset({"inactive_file", "active_file"})),
    _Version(
        "memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control",
        frozenset({"total_inactive_file", "total_active_file"}),
    ),
)  # fmt: skip
_MOUNT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")

Available = Callable[[], int | None]


def available(mount: Path = _MOUNT, own: Path = _OWN) -> int | None:
    """Return the bytes left before the kernel kills a process of this container; None if unknown or without a limit.

    Page cache counts as free.
    """
    try:
        found = _cgroup(mount, own)
        return None if found is None else _left(*found)
    except (OSError, ValueError):
        return None


def was_lacking(mount: Path = _MOUNT, own: Path = _OWN) -> bool:
    """Return whether the kernel killed a process of this container for lack of memory; False if unknown."""
    try:
        found = _cgroup(mount, own)
        return found is not None and _kills(*found) > 0
    except (OSError, ValueError):
        return False


def _cgroup(mount: Path, own: Path) -> tuple[Path, _Version] | None:
    paths = _paths(own.read_text())
    for version in _VERSIONS:
        if version.controller in paths and (directory := _directory(mount / version.directory, paths[version.controller], version)):
            return directory, version
    return None


def _paths(text: str) -> dict[str, PurePosixPath]:
    found: dict[str, PurePosixPath] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), PurePosixPath(path))
    return found


def _directory(mount: Path, path: PurePosixPath, version: _Version) -> Path | None:
    """Return the container's cgroup directory, or None. Without a cgroup namespace, ``path`` is the node's, ``mount`` the container's."""
    candidates = (mount / path.relative_to("/"), mount)
    return next((each for each in candidates if (each / version.limit).exists()), None)


def _left(directory: Path, version: _Version) -> int | None:
    limit = (directory / version.limit).read_text().strip()
    if limit == "max":
        return None
    pages = (line.split() for line in (directory / "memory.stat").read_text().splitlines())
    of_files = sum(int(size) for name, size in pages if name in version.of_files)
    return int(limit) - int((directory / version.usage).read_text()) + of_files


def _kills(directory: Path, version: _Version) -> int:
    counters = (line.split() for line in (directory / version.kills).read_text().splitlines())
    return sum(int(count) for name, count in counters if name == "oom_kill")
