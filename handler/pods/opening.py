"""Opens files below an untrusted directory with ``openat2(2)``, which Python lacks: the kernel refuses to leave the directory."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from typing import Final

NO_SYMLINKS: Final = 0x04 | 0x02 | 0x08
"""RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS, RESOLVE_BENEATH: for directories that should contain only plain files."""

_SYS_OPENAT2: Final = 437
_ATTEMPTS: Final = 16
_libc: Final = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat2(directory: int, path: str, flags: int, *, resolve: int, mode: int = 0) -> int:
    """Return a descriptor of ``path`` below ``directory`` (close-on-exec).

    Raises:
        OSError: as for open(2); ELOOP or EXDEV if ``resolve`` forbids the path; EINVAL for an invalid path.
    """
    encoded = _encoded(path)
    how = _How(flags | os.O_CLOEXEC, mode, resolve)
    code = errno.EAGAIN
    for _ in range(_ATTEMPTS):
        descriptor = _libc.syscall(_SYS_OPENAT2, directory, encoded, ctypes.byref(how), ctypes.sizeof(how))
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a directory was renamed meanwhile
            break
    raise OSError(code, os.strerror(code), path)


def _encoded(path: str) -> bytes:
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError as error:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), ascii(path)[:80]) from error
    if b"\0" in encoded:  # C would end the path there
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), ascii(path)[:80])
    return encoded


def open_directory(path: str) -> int:
    """Return an O_PATH descriptor of a directory with a path outside of pods' control."""
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)


def open_socket(directory: int, path: str) -> int:
    """Return an O_PATH descriptor of the unix socket ``path`` below ``directory``; connect to it as ``/proc/self/fd/N``.

    Raises OSError if missing, reached through a link, or not a socket (ENOTSOCK).
    """
    descriptor = openat2(directory, path, os.O_PATH | os.O_NOFOLLOW, resolve=NO_SYMLINKS)
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK), path)
    return descriptor
