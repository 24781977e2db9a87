"""Check a client's first TLS record before OpenSSL allocates its announced length."""

from __future__ import annotations

from enum import Enum
from typing import Final

_HEADER: Final = 9
"""Headers of record and message (RFC 8446, sections 4 and 5.1)."""
_MESSAGE_HEADER: Final = 4
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_MAX_HELLO: Final = 16 << 10
"""OpenSSL would allocate up to 128 KiB when announced."""


class Hello(Enum):
    """State of a client's first TLS record."""

    PARTIAL = "partial"
    WHOLE = "whole"
    TOO_LONG = "too long"
    """Also split before its length."""


def completeness(hello: bytes | bytearray) -> Hello:
    """Return the state of the first TLS record. What is not a ClientHello counts as WHOLE: OpenSSL refuses it."""
    if len(hello) < _HEADER:
        return Hello.WHOLE if hello and hello[0] != _HANDSHAKE else Hello.PARTIAL
    if hello[0] != _HANDSHAKE or hello[5] != _CLIENT_HELLO:
        return Hello.WHOLE
    length, announced = int.from_bytes(hello[3:5], "big"), int.from_bytes(hello[6:9], "big")
    if max(length, announced) > _MAX_HELLO or length < _MESSAGE_HEADER:
        return Hello.TOO_LONG
    return Hello.WHOLE if len(hello) >= 5 + length else Hello.PARTIAL
