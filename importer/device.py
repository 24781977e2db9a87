"""Write an image to a block device, the first MiB last.

This MiB marks the state. Zeros: no import yet. ``UNFINISHED`` in the first sector: started, to be restarted. Anything else is a disk, never
touched. Writing one sector is atomic, and ends the import.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from importer.failures import ImportFailed

HEAD_BYTES: Final = 1 << 20
SECTOR: Final = 512
UNFINISHED: Final = b"kubevirt.io/v1alpha1 import unfinished\n".ljust(SECTOR, b"\0")
PIECE: Final = 64 << 10
_ZEROS: Final = bytes(PIECE)
_BLKZEROOUT: Final = 0x127F
"""ioctl of ``linux/fs.h``: write zeros, often without transferring them."""


def has_disk(path: Path) -> bool:
    """Return whether a device begins with neither zeros nor the mark of an unfinished import. Raises OSError."""
    with path.open("rb", buffering=0) as opened:
        head = opened.read(HEAD_BYTES)
    return any(head) and not head.startswith(UNFINISHED)


class Device:
    """A device written sequentially; zeros also overwrite its content."""

    def __init__(self, path: Path, pwrite: Callable[[int, memoryview, int], int] = os.pwrite) -> None:
        """Open the device. ``pwrite`` writes bytes to a descriptor at an offset, and returns their number. Raises OSError."""
        self.path = path
        self._pwrite = pwrite
        self.size = 0
        self._head = bytearray()
        self._zeros_from = -1
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.capacity = os.lseek(self._file, 0, os.SEEK_END)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        os.close(self._file)

    def lock(self) -> None:
        """Lock the device in this pod. Raises ImportFailed if another import is running."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ImportFailed("another import into the claim is running") from error

    def begin(self) -> None:
        """Write the mark ``UNFINISHED`` into the first sector, durably. Raises OSError."""
        self._write_all(UNFINISHED, 0)
        os.fsync(self._file)

    def write(self, piece: bytes) -> None:
        """Append a piece of the disk; only ``finish`` writes the first MiB."""
        view = memoryview(piece)
        if room := HEAD_BYTES - len(self._head):
            self._head += view[:room]
            self.size += len(view[:room])
            view = view[room:]
        while view:
            block = view[: PIECE - self.size % PIECE]
            if block != _ZEROS[: len(block)]:
                self._write_zeros()
                self._write_all(block, self.size)
            elif self._zeros_from < 0:
                self._zeros_from = self.size
            self.size += len(block)
            view = view[len(block) :]

    def grown(self, size: int) -> int:
        """Return the size written so far: a device has a fixed size."""
        del size
        return self.size

    def finish(self) -> None:
        """Write the first MiB, which turns the device into a disk.

        Raises OSError, or ImportFailed if it would look like an empty device.
        """
        head = bytes(self._head)
        if not any(head) or head.startswith(UNFINISHED):
            raise ImportFailed("the image begins with 1 MiB of zeros, like an empty block device: use a claim with volumeMode Filesystem")
        self._write_zeros()
        head = head.ljust(min(HEAD_BYTES, self.capacity), b"\0")
        self._write_all(head[SECTOR:], SECTOR)
        os.fsync(self._file)
        self._write_all(head[:SECTOR], 0)
        os.fsync(self._file)

    def _write_zeros(self) -> None:
        start, self._zeros_from = self._zeros_from, -1
        if start < 0:
            return
        try:
            fcntl.ioctl(self._file, _BLKZEROOUT, struct.pack("QQ", start, (self.size - start) // SECTOR * SECTOR))
            start += (self.size - start) // SECTOR * SECTOR
        except OSError:  # not a block device, or no support: write plain bytes
            pass
        while start < self.size:
            start += self._write_all(_ZEROS[: self.size - start], start)

    def _write_all(self, data: bytes | memoryview, offset: int) -> int:
        view, written = memoryview(data), 0
        while written < len(view):
            written += self._pwrite(self._file, view[written:], offset + written)
        return written


@contextlib.contextmanager
def errors_explained() -> Iterator[None]:
    """Convert an OSError of the ``with`` block to ImportFailed."""
    try:
        yield
    except OSError as error:
        raise ImportFailed(f"cannot read or write the block device of the claim: {error.strerror or error}") from error
