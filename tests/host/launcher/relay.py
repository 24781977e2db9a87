"""virt-handler's part in a migration: sockets in the source's pod that lead to the target's."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from apiserver.apis.virt.places import layout
from tests.host.launcher.sandbox import Launcher


class Relay:
    """Copies bytes between two sockets; ``rate`` limits bytes per second to the target, ``cut`` ends listener and connections.

    While ``muted``, it drops the target's bytes.
    """

    def __init__(self, listen: Path, connect: Path, bytes_per_second: float) -> None:
        self._connect = connect
        self.rate = bytes_per_second
        self.muted = threading.Event()
        self._sockets: list[socket.socket] = []
        self._mutex = threading.Lock()
        self._is_cut = False
        self._listener = socket.socket(socket.AF_UNIX)
        with _short(listen) as name:
            Path(name).unlink(missing_ok=True)
            self._listener.bind(name)
        shutil.chown(listen, layout.USER_ID, layout.USER_ID)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        return len(self._sockets) // 2

    def cut(self) -> None:
        with self._mutex:
            self._is_cut = True
            for item in (self._listener, *self._sockets):
                with contextlib.suppress(OSError):
                    item.shutdown(socket.SHUT_RDWR)
                item.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                source, _address = self._listener.accept()
                target = socket.socket(socket.AF_UNIX)
                with self._mutex:
                    if self._is_cut:
                        source.close()
                        return
                    self._sockets += [source, target]
                with _short(self._connect) as name:
                    target.connect(name)
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()
                threading.Thread(target=self._pump, args=(target, source), kwargs={"back": True}, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, *, back: bool = False) -> None:
        try:
            while data := source.recv(65536):
                if back and self.muted.is_set():
                    continue
                target.sendall(data)
                if not back:
                    time.sleep(len(data) / self.rate)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # as virt-handler's relay: QEMU would wait forever on a socket that is shut down and full
            with contextlib.suppress(OSError):
                source.shutdown(socket.SHUT_RDWR)
            source.close()


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    directory = os.open(path.parent, os.O_PATH)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


@contextlib.contextmanager
def connected(source: Launcher, target: Launcher, bytes_per_second: float = float("inf")) -> Iterator[tuple[Relay, ...]]:
    """Connect the migration sockets of both pods; yield the relays for libvirt, memory, disks and made disks."""
    pairs = (
        (layout.MIGRATION_LIBVIRT_SOCKET, layout.LIBVIRT_SOCKET, float("inf")),
        (layout.MIGRATION_DATA_SOCKET, layout.MIGRATION_DATA_SOCKET, bytes_per_second),
        (layout.MIGRATION_DISKS_SOCKET, layout.MIGRATION_DISKS_SOCKET, bytes_per_second),
        (layout.MIGRATION_MADE_DISKS_SOCKET, layout.MIGRATION_MADE_DISKS_SOCKET, float("inf")),
    )
    relays = tuple(Relay(source.run_directory / here, target.run_directory / there, rate) for here, there, rate in pairs)
    try:
        yield relays
    finally:
        for relay in relays:
            relay.cut()
