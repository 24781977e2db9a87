"""A neighbour that pings a guest, and records its frames with their ports.

It sends to the guest's MAC address without ARP, so switches learn the guest's place only from the guest and its QEMU.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from dataclasses import dataclass
from types import TracebackType

from tests.host.handler import frames
from tests.host.handler.pods import within

PERIOD_SECONDS = 0.02
RARP = 0x8035
"""With it, QEMU announces a guest's card before the guest runs."""
ANNOUNCING = frozenset({frames.ARP, RARP})
_ETH_P_ALL = 3


@dataclass(frozen=True, slots=True)
class Said:
    at: float
    port: str
    kind: int


class Neighbour:
    def __init__(self, namespace: str, device: str, own: tuple[str, str], guest: tuple[str, str]) -> None:
        self._device = device
        self._asks = frames.ethernet(own[0], frames.IPV4, frames.ping(own[1], guest[1]), guest[0])
        self._guest = frames.mac(guest[0])
        self._socket = within(namespace, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL)))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.heard: list[Said] = []

    def __enter__(self) -> Neighbour:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()

    def answers(self) -> list[Said]:
        return [each for each in self.heard if each.kind == frames.IPV4]

    def _work(self) -> None:
        while not self._over.is_set():
            self._socket.sendto(self._asks, (self._device, 0))
            until = time.monotonic() + PERIOD_SECONDS
            while (left := until - time.monotonic()) > 0 and select.select([self._socket], [], [], left)[0]:
                self._note(*self._socket.recvfrom(2048))

    def _note(self, frame: bytes, where: tuple[str, int, int, int, bytes]) -> None:
        device, kind, direction, *_ = where
        if frame[6:12] == self._guest and direction != socket.PACKET_OUTGOING and device != self._device:
            self.heard.append(Said(time.monotonic(), device, kind))
