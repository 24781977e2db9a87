"""Servers of disks on loopback, as real ones as Debian has."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Self

from tests.host.launcher.sandbox import wait_for


def free_port() -> int:
    """Return a port of loopback that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        number: int = listener.getsockname()[1]
        return number


def listens(port: int) -> bool:
    """Return whether somebody does."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


class NbdServer:
    """``qemu-nbd`` with one export of a raw image; it serves until it is killed."""

    def __init__(self, image: Path, export: str = "", *options: str) -> None:
        self.port = free_port()
        self._command = ["qemu-nbd", "--persistent", "--shared=8", "--format=raw", f"--port={self.port}", "--bind=127.0.0.1", *options]
        self._command += [f"--export-name={export}", str(image)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Serve; return once somebody can connect."""
        self._process = subprocess.Popen(self._command)
        wait_for(lambda: listens(self.port), 30, "qemu-nbd")

    def kill(self) -> None:
        """Be gone, as by a power failure: nobody is told."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()
