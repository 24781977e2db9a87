"""The first record of TLS that a client sends, looked at before OpenSSL makes room for what it announces."""

from __future__ import annotations

from enum import Enum
from typing import Final

_HEADER: Final = 9
"""Bytes of a record's header and of the header of the message in it (RFC 8446, sections 4 and 5.1)."""
_MESSAGE_HEADER: Final = 4
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_MAX_HELLO: Final = 16 << 10
"""OpenSSL would make room for 128 KiB as soon as they are announced."""


class Hello(Enum):
    """The first record of a client."""

    PARTIAL = "partial"
    WHOLE = "whole"
    TOO_LONG = "too long"
    """Or announced as too long, or cut so that what it announces stands in the next record, which nobody here looks at."""


def completeness(hello: bytes | bytearray) -> Hello:
    """Return how much of the first record is there. What begins no handshake is whole: it is OpenSSL's to refuse."""
    if len(hello) < _HEADER:
        return Hello.WHOLE if hello and hello[0] != _HANDSHAKE else Hello.PARTIAL
    if hello[0] != _HANDSHAKE or hello[5] != _CLIENT_HELLO:
        return Hello.WHOLE
    length, announced = int.from_bytes(hello[3:5], "big"), int.from_bytes(hello[6:9], "big")
    if max(length, announced) > _MAX_HELLO or length < _MESSAGE_HEADER:
        return Hello.TOO_LONG
    return Hello.WHOLE if len(hello) >= 5 + length else Hello.PARTIAL
