"""Write audit events to a rotated file or to standard output."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Final

STDOUT: Final = "-"
_DAY: Final = 86400.0
_STAMP: Final = "%Y-%m-%dT%H-%M-%S.%f"


class LogFile:
    """A file rotated by size, with old files kept by number and age. ``-`` is standard output."""

    def __init__(self, path: str, *, megabytes: int = 100, backups: int = 100, days: int = 366, compress: bool = False) -> None:
        """Open the file.

        Args:
            path: the file, in an existing directory.
            megabytes: size at which to rotate; 0: never.
            backups: old files to keep; 0: all.
            days: their longest age; 0: unlimited.
            compress: gzip them.

        Raises:
            OSError: it is not writable.
        """
        self._path = None if path == STDOUT else Path(path)
        self._limit = megabytes << 20
        self._backups = backups
        self._days = days
        self._compress = compress
        self._writing = Lock()
        self._descriptor = sys.stdout.fileno() if self._path is None else self._open(self._path)
        self._size = 0 if self._path is None else os.fstat(self._descriptor).st_size

    async def store(self, batch: list[str]) -> None:
        """Append a batch."""
        await asyncio.to_thread(self.write, batch)

    def write(self, batch: list[str]) -> None:
        """Append a batch.

        Raises:
            OSError: part of it was not written.
        """
        with self._writing:
            self._append(batch)

    def _append(self, batch: list[str]) -> None:
        data = "\n".join([*batch, ""]).encode()
        if self._path is not None and self._limit and self._size and self._size + len(data) > self._limit:
            self._rotate(self._path)
        view = memoryview(data)
        while view:
            written = os.write(self._descriptor, view)
            view = view[written:]
        self._size += len(data)

    def close(self) -> None:
        """Close the file."""
        if self._path is not None:
            os.close(self._descriptor)

    @staticmethod
    def _open(path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _rotate(self, path: Path) -> None:
        old = path.with_name(f"{path.stem}-{datetime.now(UTC).strftime(_STAMP)[:-3]}{path.suffix}")
        path.rename(old)
        os.close(self._descriptor)
        self._descriptor = self._open(path)
        self._size = 0
        if self._compress:
            with old.open("rb") as source, gzip.open(f"{old}.gz", "wb", compresslevel=1) as target:
                shutil.copyfileobj(source, target)
            old.unlink()
        self._forget(path)

    def _forget(self, path: Path) -> None:
        pattern = re.compile(re.escape(path.stem) + r"-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}" + re.escape(path.suffix) + r"(\.gz)?")
        old = sorted((each for each in path.parent.iterdir() if pattern.fullmatch(each.name)), key=lambda each: each.name, reverse=True)
        oldest = time.time() - self._days * _DAY
        for index, each in enumerate(old):
            if (self._backups and index >= self._backups) or (self._days and each.stat().st_mtime < oldest):
                each.unlink(missing_ok=True)
