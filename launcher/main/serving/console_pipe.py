"""A named pipe with the output of the first serial port, for the pod's container ``guest-console``.

It keeps 64 KiB for a late reader. Beyond that, output is lost: the guest and virt-launcher never wait.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from apiserver.apis.virt.places import layout


class ConsolePipe:
    """The named pipe; writing never waits."""

    def __init__(self, path: Path) -> None:
        """Make the pipe. Raises OSError."""
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # reading as well, so it opens without a reader

    def write(self, data: bytes) -> None:
        """Append the guest's output, as far as there is room."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._pipe, data)


def default_console_pipe() -> ConsolePipe:
    """Make and return the pipe for this pod's container ``guest-console``."""
    return ConsolePipe(Path(layout.RUN_DIRECTORY, layout.CONSOLE_PIPE))
