"""A usbredir client with a USB device that only describes itself.

https://gitlab.freedesktop.org/spice/usbredir/-/blob/main/docs/usb-redirection-protocol.md. Descriptors: USB 2.0, 9.6. All numbers are
little-endian.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Final, Self

HELLO, CONNECT, INTERFACES, ENDPOINTS, SET_CONFIGURATION, CONFIGURATION, FILTER_REJECT, CONTROL = 0, 1, 4, 5, 6, 8, 22, 100
GET_CONFIGURATION, SET_ALT, GET_ALT, ALT = 7, 9, 10, 11
CAPABILITIES: Final = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 6
"""connect_device_version, filter, ep_info_max_packet_size, 64bits_ids, 32bits_bulk_length: QEMU requires the last three for an xHCI."""
FULL_SPEED, INVALID, STALL = 1, 255, 4
VENDOR_SPECIFIC: Final = 0xFF
MOST: Final = 32


class Peer:
    def __init__(
        self, connection: socket.socket, *, vendor: int, product: int, text: str = "a-device", kind: int = VENDOR_SPECIFIC
    ) -> None:
        self._socket = connection
        self._socket.settimeout(None)
        self.hello = threading.Event()
        self.rejected = threading.Event()
        self.ended = threading.Event()
        self._vendor, self._product, self._text, self._kind = vendor, product, text, kind
        self._long_ids = False
        self.heard, self.sent = b"", b""
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        try:
            self._send(HELLO, 0, b"test peer".ljust(64, b"\0") + struct.pack("<I", CAPABILITIES))
            while True:
                kind, number, body = self._receive()
                if kind == HELLO:
                    self._long_ids = True
                    self._connect()
                    self.hello.set()
                elif kind == FILTER_REJECT:
                    self.rejected.set()
                else:
                    self._answer(kind, number, body)
        except (EOFError, OSError):
            self.ended.set()

    def _connect(self) -> None:
        interfaces = (bytes([each]).ljust(MOST, b"\0") for each in (0, self._kind, 0, 0))
        self._send(INTERFACES, 0, struct.pack("<I", 1) + b"".join(interfaces))
        kinds = bytes(0 if each % 16 == 0 else INVALID for each in range(MOST))
        self._send(ENDPOINTS, 0, kinds + bytes(2 * MOST) + struct.pack("<H", 64) * MOST)
        device = struct.pack("<BBBBHHH", FULL_SPEED, 0, 0, 0, self._vendor, self._product, 0x0100)
        self._send(CONNECT, 0, device)

    def _answer(self, kind: int, number: int, body: bytes) -> None:
        if kind in (SET_CONFIGURATION, GET_CONFIGURATION):
            self._send(CONFIGURATION, number, bytes([0, 1]))
        elif kind in (SET_ALT, GET_ALT):
            self._send(ALT, number, bytes([0, body[0], 0]))
        elif kind == CONTROL:
            endpoint, request, request_type, _, value, index, length = struct.unpack_from("<BBBBHHH", body)
            data = self._said(request_type, request, value)
            status, data = (STALL, b"") if data is None else (0, data[:length])
            head = struct.pack("<BBBBHHH", endpoint, request, request_type, status, value, index, len(data))
            self._send(CONTROL, number, head + data)

    def _said(self, request_type: int, request: int, value: int) -> bytes | None:
        if (request_type, request) == (0x80, 6):
            return self._descriptors().get(value)
        return bytes(2) if request == 0 and request_type & 0x80 else None

    def _descriptors(self) -> dict[int, bytes]:
        text = self._text.encode("utf-16-le")
        interface = struct.pack("<BBBBBBBBB", 9, 4, 0, 0, 0, self._kind, 0, 0, 0)
        return {
            0x0100: struct.pack("<BBHBBBBHHHBBBB", 18, 1, 0x0200, 0, 0, 0, 64, self._vendor, self._product, 0x0100, 0, 2, 0, 1),
            0x0200: struct.pack("<BBHBBBBB", 9, 2, 9 + len(interface), 1, 1, 0, 0x80, 50) + interface,
            0x0300: struct.pack("<BBH", 4, 3, 0x0409),
            0x0302: bytes([2 + len(text), 3]) + text,
        }

    def _send(self, kind: int, number: int, body: bytes) -> None:
        head = struct.pack("<II", kind, len(body)) + struct.pack("<Q" if self._long_ids else "<I", number)
        self.sent += head + body
        self._socket.sendall(head + body)

    def _receive(self) -> tuple[int, int, bytes]:
        kind, length = struct.unpack("<II", self._exactly(8))
        (number,) = struct.unpack("<Q", self._exactly(8)) if self._long_ids else struct.unpack("<I", self._exactly(4))
        return kind, number, self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        self.heard += data
        return data
