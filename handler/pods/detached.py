"""Makes mounts of new file systems, mounted nowhere: ``fsopen(2)``, ``fsconfig(2)``, ``fsmount(2)``."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from apiserver.apis.meta import descriptors

_libc: Final = ctypes.CDLL(None, use_errno=True)
_SYS_FSOPEN: Final = 430
_SYS_FSCONFIG: Final = 431
_SYS_FSMOUNT: Final = 432
_CLOEXEC: Final = 1
"""FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC."""
_SET_FLAG: Final = 0
_SET_STRING: Final = 1
_CREATE: Final = 6


@contextmanager
def mount(kind: bytes, key: bytes, value: bytes | None = None, *, attributes: int = 0) -> Iterator[int]:
    """Yield a descriptor of a new mount of a file system ``kind``, with the option ``key``: a flag, or with ``value`` a string.

    ``attributes``: MOUNT_ATTR_*. Raises OSError.
    """
    with descriptors.closing(_call(_SYS_FSOPEN, kind, _CLOEXEC)) as system:
        _call(_SYS_FSCONFIG, system, _SET_FLAG if value is None else _SET_STRING, key, value, 0)
        _call(_SYS_FSCONFIG, system, _CREATE, None, None, 0)
        with descriptors.closing(_call(_SYS_FSMOUNT, system, _CLOEXEC, attributes)) as tree:
            yield tree


def _call(number: int, *arguments: int | bytes | None) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "a new mount")
    return result
