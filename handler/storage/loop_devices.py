"""Loop devices: block devices with a file's content (loop(4))."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors

_CONTROL: Final = "/dev/loop-control"
_LOOP_CONFIGURE: Final = 0x4C0A
_LOOP_GET_STATUS64: Final = 0x4C05
_LOOP_CTL_GET_FREE: Final = 0x4C82
_AUTOCLEAR: Final = 4
"""LO_FLAGS_AUTOCLEAR: the last user's end frees the device."""
_INFO: Final = struct.Struct("=QQQQQIIII64s64s32sQQ")
"""``struct loop_info64``."""
_CONFIG: Final = struct.Struct(f"=II{_INFO.size}s64s")
_ATTEMPTS: Final = 8
"""Another program may take the free device."""
_one: Final = threading.Lock()


@contextlib.contextmanager
def attached(file: int) -> Iterator[str]:
    """Yield the path of a loop device of an open file, attached unless it has one; it exists while open or mounted. Raises OSError.

    Two devices of a file would damage the file system in it.
    """
    with _one:
        device, path = _of(file) or _new(file)
    with descriptors.closing(device):
        yield path


def number_of(file: int) -> int:
    """Return the device number of an open file's loop device; 0: it has none."""
    if (found := _of(file)) is None:
        return 0
    with descriptors.closing(found[0]) as device:
        return os.fstat(device).st_rdev


def _of(file: int) -> tuple[int, str] | None:
    wanted = os.fstat(file)
    for each in sorted(Path("/sys/block").glob("loop*/loop")):
        path = f"/dev/{each.parent.name}"
        with contextlib.suppress(OSError):  # it was freed meanwhile, or is not in our /dev
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            with descriptors.on_error(functools.partial(os.close, device)):
                info = _INFO.unpack(fcntl.ioctl(device, _LOOP_GET_STATUS64, bytes(_INFO.size)))
            if (info[0], info[1]) == (wanted.st_dev, wanted.st_ino):
                return device, path
            os.close(device)
    return None


def _new(file: int) -> tuple[int, str]:
    config = _CONFIG.pack(file, 0, _INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, _AUTOCLEAR, b"", b"", b"", 0, 0), b"")
    with descriptors.closing(os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)) as control:
        for attempt in range(1, _ATTEMPTS + 1):
            path = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _LOOP_CONFIGURE, config)
            except OSError:
                os.close(device)
                if attempt == _ATTEMPTS:
                    raise
            else:
                return device, path
    raise AssertionError("unreachable")
