"""Write an image into a claim: to a temporary file, renamed when complete.

``disk.img`` marks a finished import, and is never touched. The next try recreates other files of ours, ``.disk.img.*``, so a killed process
leaves nothing like a disk.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from importer.failures import ImportFailed

IMAGE: Final = "disk.img"
PARTIAL: Final = ".disk.img.import"
"""The incomplete disk, locked by its import."""
SOURCE: Final = ".disk.img.import-source"
BLOCK: Final = 4096
HOLE: Final = 64 << 10
_MODE: Final = 0o660
_ZEROS: Final = bytes(HOLE)
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class DiskExists(ImportFailed):
    """The claim has a disk."""


class File:
    """A file written sequentially, with holes for zeros."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it. Raises OSError."""
        self.path = path
        self.size = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        os.close(self._file)

    def lock(self) -> None:
        """Lock the file, an import's partial one. Raises ImportFailed if another import is running or has just ended."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            here, there = os.fstat(self._file), os.lstat(self.path)
        except (BlockingIOError, FileNotFoundError) as error:
            raise ImportFailed("another import into the claim is running") from error
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise ImportFailed("another import into the claim has just ended")

    def begin(self) -> None:
        """Discard the file's data of an earlier try."""
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        self.size = 0

    def write(self, piece: bytes) -> None:
        """Append a piece, with holes for zeros. Raises OSError."""
        view = memoryview(piece)
        while view:
            block = view[: HOLE - self.size % HOLE]
            if block == _ZEROS[: len(block)]:
                os.lseek(self._file, len(block), os.SEEK_CUR)
            else:
                _write_all(self._file, block)
            self.size += len(block)
            view = view[len(block) :]

    def read(self, offset: int, length: int) -> bytes:
        """Return at most ``length`` bytes from an offset."""
        return os.pread(self._file, length, offset)

    def grown(self, size: int) -> int:
        """Extend the disk to at least ``size`` bytes in whole blocks; return its size. Call it once all is written: it also ends a hole."""
        self.size = -(-max(size, self.size, os.fstat(self._file).st_size) // BLOCK) * BLOCK
        os.ftruncate(self._file, self.size)
        return self.size

    def sync(self) -> None:
        """Flush the file to storage."""
        os.fsync(self._file)


def _write_all(file: int, block: memoryview) -> None:
    while block:
        block = block[os.write(file, block) :]


def has_disk(directory: Path) -> bool:
    """Return whether the claim has ``disk.img``, a complete disk, or anything of this name."""
    return os.path.lexists(directory / IMAGE)


def capacity(directory: Path) -> int:
    """Return the size of the claim's file system in bytes."""
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize


@contextlib.contextmanager
def errors_explained(directory: Path) -> Iterator[None]:
    """Convert an OSError of the ``with`` block to ImportFailed: the claim is full or not writable."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            needed = "it must be larger than the disk, with additional space for a qcow2 image"
            raise ImportFailed(f"the claim is full ({capacity(directory)} bytes): {needed}") from error
        raise ImportFailed(f"cannot write to the claim: {error.strerror or error}") from error


def finish(directory: Path, file: File) -> None:
    """Flush ``file``, the claim's partial file, and give it the disk's name.

    Raises:
        DiskExists: another import's disk has the name, and stays.
        OSError: it failed.
    """
    file.sync()
    partial, image = directory / PARTIAL, directory / IMAGE
    try:
        os.link(partial, image)  # unlike a rename, it never overwrites
    except FileExistsError as error:
        partial.unlink(missing_ok=True)
        raise DiskExists("another import has created a disk in the claim") from error
    except OSError:  # a file system without links
        if has_disk(directory):
            raise DiskExists("another import has created a disk in the claim") from None
        partial.rename(image)
    partial.unlink(missing_ok=True)
    _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
