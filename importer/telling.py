"""Words to virt-launcher: lines of JSON on the standard output.

``{"phase": "Downloading", "bytes": 1048576, "total": 4194304}`` while it goes on (``total`` is null where nobody knows), the last line is
``{"result": "Succeeded"}`` or ``{"result": "Failed", "message": …}``.
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
"""Between two lines of the same phase."""
MAX_MESSAGE: Final = 1024


class Telling:
    """Writes what is worth a line."""

    def __init__(self, output: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to the file descriptor ``output``."""
        self._output = output
        self._clock = clock
        self._last: tuple[str, float] = ("", 0.0)

    def progress(self, phase: str, done: int, total: int | None) -> None:
        """Tell how many bytes there are of how many."""
        before, then = self._last
        if phase == before and self._clock() - then < SECONDS:
            return
        self._last = (phase, self._clock())
        self._write({"phase": phase, "bytes": done, "total": total})

    def succeeded(self) -> None:
        """Tell that the disk is there."""
        self._write({"result": "Succeeded"})

    def failed(self, message: str) -> None:
        """Tell why it is not."""
        self._write({"result": "Failed", "message": message[:MAX_MESSAGE]})

    def _write(self, document: dict[str, Any]) -> None:
        os.write(self._output, json.dumps(document).encode() + b"\n")
