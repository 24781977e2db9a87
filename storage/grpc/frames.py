"""HTTP/2 frames as bytes: RFC 9113, sections 4.1, 6 and 7."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

HEADER: Final = struct.Struct(">IBI")
"""Length and type share the first four octets; then flags, then the stream's identifier."""
HEADER_BYTES: Final = 9

DATA: Final = 0
HEADERS: Final = 1
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY: Final = 0x20

SETTINGS_HEADER_TABLE_SIZE: Final = 1
SETTINGS_ENABLE_PUSH: Final = 2
SETTINGS_MAX_CONCURRENT_STREAMS: Final = 3
SETTINGS_INITIAL_WINDOW_SIZE: Final = 4
SETTINGS_MAX_FRAME_SIZE: Final = 5
SETTINGS_MAX_HEADER_LIST_SIZE: Final = 6

PROTOCOL_ERROR: Final = 1
FLOW_CONTROL_ERROR: Final = 3
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11
ERROR_NAMES: Final = (
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
    "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
)  # fmt: skip

DEFAULT_WINDOW: Final = 65_535
MAX_WINDOW: Final = 2**31 - 1
FRAME_BYTES: Final = 16_384
"""Payload that every peer accepts by default."""

_INT: Final = struct.Struct(">I")
_SETTING: Final = struct.Struct(">HI")


class ProtocolError(Exception):
    """The peer violated the protocol, so the connection ends. ``code`` is for GOAWAY."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def error_name(code: int) -> str:
    """Return the name of an error code of RFC 9113, section 7."""
    return ERROR_NAMES[code] if code < len(ERROR_NAMES) else f"error {code}"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return one frame."""
    return HEADER.pack(len(payload) << 8 | kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values.items()))


def window_update(stream: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream, _INT.pack(increment))


def reset(stream: int, code: int) -> bytes:
    """Return an RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, _INT.pack(code))


def goaway(code: int) -> bytes:
    """Return a GOAWAY frame of a client."""
    return frame(GOAWAY, 0, 0, _INT.pack(0) + _INT.pack(code))


def number(payload: bytes) -> int:
    """Return the 32-bit payload of RST_STREAM and similar frames. Raises ProtocolError."""
    if len(payload) != _INT.size:
        raise ProtocolError(FRAME_SIZE_ERROR, f"a frame of {len(payload)} bytes that must have 4")
    return int(_INT.unpack(payload)[0])


def pairs(payload: bytes) -> Iterator[tuple[int, int]]:
    """Return an iterator over (key, value) in a SETTINGS payload. Raises ProtocolError."""
    if len(payload) % _SETTING.size:
        raise ProtocolError(FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} octets")
    return _SETTING.iter_unpack(payload)


def unpadded(flags: int, payload: bytes) -> bytes:
    """Return a payload without its padding, if ``flags`` announce one. Raises ProtocolError."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ProtocolError(PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - payload[0]]
