"""The protocols (ALPN) that a TLS client offers in its first record. Pure.

They are not verified. The format is RFC 8446, 4.1.2; a message in several records offers nothing.
"""

from __future__ import annotations

from typing import Final

RECORD_HEADER_BYTES: Final = 5
MAX_RECORD_BYTES: Final = RECORD_HEADER_BYTES + (16 << 10)
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_VERSION_AND_RANDOM_BYTES: Final = 2 + 32
_ALPN: Final = 16


class _Bytes:
    """Bytes that are read from the front. Raises ValueError if too few are left."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __bool__(self) -> bool:
        return bool(self._data)

    def take(self, count: int) -> bytes:
        if count > len(self._data):
            raise ValueError("it is cut off")
        taken, self._data = self._data[:count], self._data[count:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> _Bytes:
        """Take a length of ``size`` bytes and that many bytes; return the latter."""
        return _Bytes(self.take(self.number(size)))

    def rest(self) -> bytes:
        return self.take(len(self._data))


def record_bytes(header: bytes) -> int:
    """Return the size of a client's first TLS record, with its header; 0 for anything else, or a size over ``MAX_RECORD_BYTES``."""
    size = RECORD_HEADER_BYTES + int.from_bytes(header[3:RECORD_HEADER_BYTES])
    is_tls = len(header) >= RECORD_HEADER_BYTES and header[:2] == bytes((_HANDSHAKE, 3))
    return size if is_tls and size <= MAX_RECORD_BYTES else 0


def protocols(record: bytes) -> tuple[bytes, ...]:
    """Return the protocols (ALPN) that the client offers; none if the record is not its whole first message."""
    try:
        return _protocols(_Bytes(record[RECORD_HEADER_BYTES:]))
    except ValueError:
        return ()


def _protocols(message: _Bytes) -> tuple[bytes, ...]:
    if message.number(1) != _CLIENT_HELLO:
        return ()
    hello = message.vector(3)
    hello.take(_VERSION_AND_RANDOM_BYTES)
    for size in (1, 2, 1):  # session, ciphers, compressions
        hello.vector(size)
    extensions = hello.vector(2)
    while extensions:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _ALPN:
            return tuple(_each(content.vector(2)))
    return ()


def _each(names: _Bytes) -> list[bytes]:
    found = []
    while names:
        found.append(names.vector(1).rest())
    return found
