"""A SPICE client that links channels, learns which exist, and types.

https://www.spice-space.org/spice-protocol.html; numbers are little-endian.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Final, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import load_der_public_key

MAIN, DISPLAY, INPUTS = 1, 2, 3
SHORT, LONG = 1 << 0 | 1 << 1 | 1 << 3, 1 << 0 | 1 << 1
"""Capabilities: the client chooses how to authenticate, by a ticket; with SHORT, headers of messages are short."""
_MAGIC: Final = b"REDQ"
_TICKET: Final = 1
_KEY_BYTES: Final = 162
_INIT, _CHANNELS, _ATTACH = 103, 104, 104
DISPLAY_INIT: Final = 101
CACHES: Final = struct.pack("<BqBi", 1, 1 << 20, 1, 1 << 20)
"""Number and size of the client's cache of images, and of its dictionary of GLZ."""
_KEY_DOWN, _KEY_UP = 101, 102


def link(kind: int, session: int = 0, capabilities: int = SHORT) -> bytes:
    return _linked(struct.pack("<IBBIIII", session, kind, 0, 1, 0, 18, capabilities))


def reply(capabilities: int = SHORT, error: int = 0) -> bytes:
    return _linked(struct.pack("<I162xIIII", error, 1, 0, 178, capabilities))


def _linked(body: bytes) -> bytes:
    return _MAGIC + struct.pack("<III", 2, 2, len(body)) + body


def message(kind: int, data: bytes = b"", capabilities: int = SHORT) -> bytes:
    head = struct.pack("<HI", kind, len(data)) if capabilities == SHORT else struct.pack("<QHII", 1, kind, len(data), 0)
    return head + data


class Channel:
    """A connection linked to a SPICE channel, with an empty ticket, because the socket needs none."""

    def __init__(self, connection: socket.socket, kind: int, session: int = 0) -> None:
        self._socket = connection
        connection.settimeout(60)
        connection.sendall(link(kind, session))
        magic, *_, size = struct.unpack("<4sIII", self._exactly(16))
        assert magic == _MAGIC
        reply = self._exactly(size)
        assert int.from_bytes(reply[:4], "little") == 0, "QEMU refuses the link"
        key = load_der_public_key(reply[4 : 4 + _KEY_BYTES])
        assert isinstance(key, rsa.RSAPublicKey)
        ticket = key.encrypt(b"\0", padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None))
        connection.sendall(struct.pack("<I", _TICKET) + ticket)
        assert self._exactly(4) == bytes(4), "QEMU refuses the ticket"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, kind: int, data: bytes = b"") -> None:
        self._socket.sendall(message(kind, data))

    def receive(self, kind: int) -> bytes:
        while True:
            found, size = struct.unpack("<HI", self._exactly(6))
            data = self._exactly(size)
            if found == kind:
                return data

    def press(self, code: int) -> None:
        self.send(_KEY_DOWN, struct.pack("<I", code))
        self.send(_KEY_UP, struct.pack("<I", code | 0x80))

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self._socket.recv(count - len(found))
            if not piece:
                raise ConnectionError(f"QEMU ended the channel, and {count - len(found)} bytes are missing")
            found += piece
        return found


class Session:
    """A client's main channel, with its session's number and channels."""

    def __init__(self, dial: Callable[[], socket.socket]) -> None:
        self._dial = dial
        self.main = Channel(dial(), MAIN)
        self.number = int.from_bytes(self.main.receive(_INIT)[:4], "little")
        self.main.send(_ATTACH)
        listed = self.main.receive(_CHANNELS)
        self.channels = {listed[4 + 2 * each] for each in range(int.from_bytes(listed[:4], "little"))}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.main.__exit__()

    def open(self, kind: int) -> Channel:
        """Open another channel. A display channel first sends its caches: QEMU crashes if it ends before (decisions/streams.md)."""
        channel = Channel(self._dial(), kind, self.number)
        if kind == DISPLAY:
            channel.send(DISPLAY_INIT, CACHES)
        return channel
