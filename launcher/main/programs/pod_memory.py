"""Memory that this container may still use, from its cgroup.

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
    of_files: frozenset[str]


_VERSIONS: Final = (
    _Version("", "", "memory.max", "memory.current", frozenset({"inactive_file", "active_file"})),
    _Version("memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", frozenset({"total_inactive_file", "total_active_file"})),
)

Available = Callable[[], int | None]


def available(mount: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """Return the bytes left before the kernel kills a process of this container; None if unknown or without a limit.

    Page cache counts as free.
    """
    try:
        paths = _paths(own.read_text())
        for version in _VERSIONS:
            if version.controller in paths and (directory := _directory(mount / version.directory, paths[version.controller], version)):
                return _left(directory, version)
    except (OSError, ValueError):
        pass
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
