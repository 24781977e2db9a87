"""Content of Secrets and ConfigMaps that the kubelet mounted.

The kubelet switches the link ``..data`` to a directory with one version of all files; following it once is consistent.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.hardware import cloud_init

_CURRENT: Final = "..data"
_TRIES: Final = 5
"""The kubelet may remove a replaced version while we read it."""


class Unreadable(Exception):
    """A mounted Secret or ConfigMap cannot be read; the message says why, without content."""


def read(directory: Path, *, limit: int = cloud_init.MAX_VALUES, count: int = cloud_init.MAX_FILES) -> dict[str, bytes]:
    """Return a mounted Secret's or ConfigMap's values by key. Raises Unreadable, also above ``count`` keys or ``limit`` bytes in all."""
    for left in reversed(range(_TRIES)):
        try:
            return _read(directory, limit, count)
        except FileNotFoundError:
            if not left:
                raise Unreadable("it is not mounted") from None
        except OSError as error:
            raise Unreadable(error.strerror or type(error).__name__) from None
    raise AssertionError


def version(directory: Path) -> str:
    """Return a string that changes with the mounted content; empty if nothing is mounted."""
    try:
        return str((directory / _CURRENT).readlink())
    except OSError:
        return ""


def _read(directory: Path, limit: int, count: int) -> dict[str, bytes]:
    target = (directory / _CURRENT).readlink()
    if len(target.parts) != 1 or target.name in ("", ".."):
        raise Unreadable("its data are outside of its volume")
    with descriptors.closing(os.open(directory / target, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)) as current:
        names = sorted(os.listdir(current))  # noqa: PTH208  # no path: the link may have changed by now
        if len(names) > count:
            raise Unreadable(f"it has {len(names)} keys, more than {count}")
        found: dict[str, bytes] = {}
        for name in names:
            found[name] = _file(current, name, limit)
            limit -= len(found[name])
        return found


def _file(directory: int, name: str, limit: int) -> bytes:
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Unreadable(f"{name!r} is not a regular file")
        data = opened.read(limit + 1)
    if len(data) > limit:
        raise Unreadable("its values are larger than Kubernetes allows")
    return data
