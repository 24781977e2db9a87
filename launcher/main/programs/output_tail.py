"""The end of what a process writes, which a guest can make any amount of."""

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
    """The newest output that came out of a pipe."""

    reader: int
    """The pipe's end; closed once the other one is, or by ``end``."""
    kept: bytes = b""

    def begin(self) -> None:
        """Read from now on."""
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
        """Return them; nothing is read any more."""
        if self.reader >= 0:
            self._read()
        self._close()
        return one_line(self.kept.decode(errors="replace"), MAX_BYTES)

    def _close(self) -> None:
        if self.reader >= 0:
            asyncio.get_running_loop().remove_reader(self.reader)
            os.close(self.reader)
            self.reader = -1
