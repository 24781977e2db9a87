"""Report an import to virt-launcher, as lines of JSON on standard output.

``{"phase": "Downloading", "bytes": 1048576, "total": 4194304}`` (``total``: null if unknown), and finally ``{"result": "Succeeded"}`` or
``{"result": "Failed", "message": …}``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any, Final

DOWNLOADING: Final = "Downloading"
CONVERTING: Final = "Converting"
SECONDS: Final = 2.0
MAX_MESSAGE: Final = 1024


class Reporter:
    """Reports progress and result of the import."""

    def __init__(self, output: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to the file descriptor ``output``."""
        self._output = output
        self._clock = clock
        self._done: tuple[int, int | None] = (0, None)
        self._told_at: float | None = None

    def downloaded(self, done: int, total: int | None) -> None:
        """Report downloaded and total bytes, at most every ``SECONDS``."""
        self._done = (done, total)
        if self._told_at is None or self._clock() - self._told_at >= SECONDS:
            self._progress(DOWNLOADING)

    def converting(self) -> None:
        """Report the conversion's start."""
        self._progress(CONVERTING)

    def succeeded(self) -> None:
        """Report that the disk exists."""
        if self._told_at is not None:
            self._progress(DOWNLOADING)
        self._write({"result": "Succeeded"})

    def _progress(self, phase: str) -> None:
        self._told_at = self._clock()
        self._write({"phase": phase, "bytes": self._done[0], "total": self._done[1]})

    def failed(self, message: str) -> None:
        """Report that the import failed, and why."""
        self._write({"result": "Failed", "message": message[:MAX_MESSAGE]})

    def _write(self, document: dict[str, Any]) -> None:
        os.write(self._output, json.dumps(document).encode() + b"\n")
