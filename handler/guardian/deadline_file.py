"""Writes the deadline of the node's guests (``apiserver.apis.virt.places.deadlines``) for virt-launchers, and for the next guardian."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from apiserver.apis.virt.places import deadlines

MAX_HOLDERS_TEXT: Final = 40 * deadlines.MAX_HOLDERS


class DeadlineFile:
    """The file with the deadline of the node's guests; virt-launchers keep it open, so it is never replaced."""

    def __init__(self, directory: Path, boot: str) -> None:
        """Open the file in ``directory``, both made if missing; ``boot`` is the node's boot ID. Raises OSError."""
        self._boot = boot
        self._holders = directory / deadlines.HOLDERS
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._descriptor = os.open(directory / deadlines.FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)

    def read(self) -> float | None:
        """Return the file's deadline, in seconds of CLOCK_BOOTTIME; None without one, or if it is of an earlier boot."""
        found = deadlines.decode(os.pread(self._descriptor, deadlines.SIZE + 1, 0))
        return found[0] if found is not None and found[1] == self._boot else None

    def write(self, until: float | None) -> None:
        """Write the deadline, in seconds of CLOCK_BOOTTIME; None: guests need not end."""
        os.pwrite(self._descriptor, deadlines.encode(until, self._boot), 0)

    def holders(self) -> frozenset[str]:
        """Return the uids of the pods with a virt-launcher that ends its guest by this file, as virt-handler recorded them."""
        try:
            descriptor = os.open(self._holders, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return frozenset()
        with os.fdopen(descriptor, errors="replace") as file:
            return frozenset(file.read(MAX_HOLDERS_TEXT).split())

    def close(self) -> None:
        """Close the file, which stays."""
        os.close(self._descriptor)
