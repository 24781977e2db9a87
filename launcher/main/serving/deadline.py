"""Ends this pod after the deadline of the node's guardian, even if the guardian does not run: the second killer.

virt-handler passes a descriptor of the guardian's file. A thread reads it, so nothing that hangs in this process delays the end.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from apiserver.apis.virt.places import deadlines
from apiserver.apis.virt.places.deadlines import elapsed
from launcher.main.programs import qemu_log
from launcher.main.serving import wire

MARGIN_SECONDS: Final = 1.0
"""The guardian ends the guests first."""
LOOK_SECONDS: Final = 0.25
LOOKS: Final = 2
"""A read during a write could return a wrong time."""
EXPIRED: Final = "the node is cut off from kube-apiserver, and the promise of its guardian is over"
_UCRED: Final = struct.Struct("iII")


def end_pod() -> NoReturn:
    """Write the reason to the termination log and exit with 1; the kernel then kills the container's processes."""
    with suppress(OSError):
        if qemu_log.TERMINATION_LOG.exists():
            qemu_log.TERMINATION_LOG.write_text(EXPIRED)
    os._exit(1)


class Deadline:
    """Ends the pod after the guardian's deadline. ``giver``: the user who may pass the file's descriptor: virt-handler's root."""

    def __init__(self, path: Path, end: Callable[[], None] = end_pod, clock: Callable[[], float] = elapsed, giver: int = 0) -> None:
        self._path = path
        self._end = end
        self._clock = clock
        self._giver = giver
        self._file: int | None = None
        self._late = 0
        self._stopped = threading.Event()

    def run(self) -> None:
        """Listen at the socket, and look at the deadline, until :meth:`stop`. For a thread."""
        wire.remove(self._path)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._path))
            listener.listen(4)
            listener.settimeout(LOOK_SECONDS)
            while not self._stopped.is_set():
                with suppress(OSError), listener.accept()[0] as link:  # also after LOOK_SECONDS
                    link.settimeout(LOOK_SECONDS)
                    self.receive(link)
                with suppress(OSError):  # the next look may succeed, and without this thread only the guardian ends the pod
                    self.look()

    def stop(self) -> None:
        """End :meth:`run`."""
        self._stopped.set()

    def receive(self, link: socket.socket) -> None:
        """Take the descriptor that a connection passes, and confirm it; ignore other users than the giver."""
        _, user, _ = _UCRED.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        if user != self._giver:
            return
        _, given, _, _ = socket.recv_fds(link, 1, 1)
        if given:
            before, self._file = self._file, given[0]
            if before is not None:
                os.close(before)
            link.sendall(deadlines.CONFIRMED)

    def look(self) -> None:
        """End the pod if the deadline was over at the last ``LOOKS`` looks."""
        self._late = self._late + 1 if self._is_over() else 0
        if self._late >= LOOKS:
            self._end()

    def _is_over(self) -> bool:
        if self._file is None:
            return False
        found = deadlines.decode(os.pread(self._file, deadlines.SIZE + 1, 0))
        return found is not None and found[0] is not None and self._clock() >= found[0] + MARGIN_SECONDS
