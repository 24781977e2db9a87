"""Reads and limits QEMU's log, and limits the pod's termination log.

The guest can cause unlimited messages of QEMU, and a compromised QEMU can replace the file. It can also write to the termination log, which
counts towards no limit of the kubelet (kubernetes/kubernetes#122224).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from launcher.main.decisions import life

TERMINATION_LOG: Final = Path("/dev/termination-log")
MAX_BYTES: Final = 1 << 20
"""A longer log is cut. Between two checks it can fill the volume; then QEMU's writes fail, and QEMU continues."""
KEPT_BYTES: Final = 16 << 10


def last_lines(path: Path) -> tuple[str, ...]:
    """Return the last lines of QEMU's log; none without a file."""
    try:
        with _opened(path, os.O_RDONLY) as file:
            return life.last_lines(_end(file))
    except OSError:
        return ()


def trim_all(path: Path, termination_log: Path = TERMINATION_LOG) -> list[Path]:
    """Cut QEMU's log and the termination log if they are too long, and return which were."""
    return [each for each in (path, termination_log) if trim(each)]


def trim(path: Path) -> bool:
    """Cut a log that is too long to its end; return whether it was cut, False also after an OSError.

    QEMU appends, so it continues at the new end. Output between reading and cutting is lost.
    """
    try:
        with _opened(path, os.O_RDWR) as file:
            if file.seek(0, os.SEEK_END) <= MAX_BYTES:
                return False
            end = _end(file)
            file.truncate(0)
            file.seek(0)
            file.write(end)
    except OSError:
        return False
    return True


def _end(file: BinaryIO) -> bytes:
    file.seek(max(0, file.seek(0, os.SEEK_END) - KEPT_BYTES))
    return file.read(KEPT_BYTES)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[BinaryIO]:
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb" if flags == os.O_RDONLY else "r+b", buffering=0, closefd=True) as file:  # noqa: PTH123 - of a descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        yield file
