"""The end of a process' output. The guest can cause unlimited output."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.lines import one_line

MAX_BYTES: Final = 512
READ_BYTES: Final = 64 << 10


@dataclass(slots=True)
class OutputTail:
    """The newest output from a pipe."""

    reader: int
    """Closed at the pipe's end, or by ``end``."""
    kept: bytes = b""

    def begin(self) -> None:
        """Start to read the pipe in the event loop."""
        os.set_blocking(self.reader, False)
        asyncio.get_running_loop().add_reader(self.reader, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self.reader, READ_BYTES)
        except BlockingIOError:
            return
        self.kept = (self.kept + data)[-MAX_BYTES:]
        if not data:
            self._close()

    def end(self) -> str:
        """Return the kept output as one line, and stop reading."""
        if self.reader >= 0:
            self._read()
        self._close()
        return one_line(self.kept.decode(errors="replace"), MAX_BYTES)

    def _close(self) -> None:
        if self.reader >= 0:
            asyncio.get_running_loop().remove_reader(self.reader)
            os.close(self.reader)
            self.reader = -1
