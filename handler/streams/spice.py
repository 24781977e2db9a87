"""Protects QEMU from SPICE clients that leave at a display's start.

libspice-server 0.15 frees a display's client that leaves or errs before ``DISPLAY_INIT``, uses it again, and QEMU crashes. This module
passes the client's first messages on whole, and sends ``DISPLAY_INIT`` for a client that left.

https://www.spice-space.org/spice-protocol.html: both sides send a link message, the client sends a ticket, QEMU answers with four bytes.
Messages follow.
"""

from __future__ import annotations

import struct
from enum import Enum, auto
from typing import Final

from handler.streams.usbredir import Breach

MAX_AHEAD_BYTES: Final = 128 << 10
"""Viewers send little before QEMU's first picture."""
MAX_LINK_BYTES: Final = 4 << 10

_MAGIC: Final = b"REDQ"
_HEAD_BYTES: Final = 16
_LINK_BYTES: Final = 18
_KIND: Final = _HEAD_BYTES + 4
_DISPLAY: Final = 2
_REPLY: Final = struct.Struct("<I162xIII")
"""Error, public key, number of common capabilities, number of the channel's, offset."""
_CHOOSES, _SHORT = 1 << 0, 1 << 3
"""Capabilities: the client chooses how to authenticate; headers of messages are short."""
_TICKET_BYTES: Final = 128
_RESULT_BYTES: Final = 4
_INIT: Final = 101
"""QEMU's messages of a display have higher numbers."""
_CACHES: Final = struct.pack("<BqBi", 1, 1 << 20, 1, 1 << 20)


class _Stage(Enum):
    """The client's next message."""

    LINK = auto()
    REPLY = auto()
    """The client's bytes wait for QEMU's link message."""
    TICKET = auto()
    INIT = auto()
    ANSWER = auto()
    """The client's bytes wait for QEMU's first message of a display."""
    FREE = auto()


class Channel:
    """Passes one SPICE client's bytes to QEMU, in whole messages until QEMU survives the connection's end."""

    def __init__(self) -> None:
        self._stage = _Stage.LINK
        self._held = bytearray()
        """The client's bytes for QEMU."""
        self._heard = bytearray()
        """QEMU's bytes."""
        self._skipped = 0
        """Bytes of QEMU before its next header."""
        self._capabilities = 0
        """The client's; after QEMU's link message, the shared ones."""

    @property
    def is_fragile(self) -> bool:
        """True if the end of the connection would crash QEMU."""
        return self._stage in {_Stage.INIT, _Stage.ANSWER}

    def from_client(self, data: bytes) -> bytes:
        """Return the client's bytes that QEMU gets now that ``data`` came, and hold the rest."""
        if self._stage is _Stage.FREE:
            return data
        self._held += data
        if len(self._held) > MAX_AHEAD_BYTES:
            raise Breach(f"the client sends over {MAX_AHEAD_BYTES} bytes before QEMU answers")
        return self._passed()

    def from_guest(self, data: bytes) -> bytes:
        """Read QEMU's bytes; return the held bytes of the client that QEMU gets now."""
        if self._stage is _Stage.FREE:
            return b""
        self._heard += data
        if self._stage is _Stage.REPLY:
            self._hear_reply()
        if self.is_fragile:
            self._hear_messages()
        if len(self._heard) > MAX_AHEAD_BYTES:
            self._stage = _Stage.FREE
        return self._passed()

    def ending(self) -> bytes:
        """Return, once the client has left, ``DISPLAY_INIT`` if QEMU waits for it, else no bytes."""
        if self._stage is not _Stage.INIT:
            return b""
        self._held.clear()
        self._stage = _Stage.ANSWER
        head = struct.pack("<HI", _INIT, len(_CACHES)) if self._is_short else struct.pack("<QHII", 1, _INIT, len(_CACHES), 0)
        return head + _CACHES

    def _passed(self) -> bytes:
        passed = b""
        while count := self._next():
            passed += self._held[:count]
            del self._held[:count]
        return passed

    def _next(self) -> int:
        match self._stage:
            case _Stage.LINK:
                return self._link()
            case _Stage.TICKET:
                return self._whole(_TICKET_BYTES + 4 * bool(self._capabilities & _CHOOSES), _Stage.INIT)
            case _Stage.INIT:
                return self._init()
            case _Stage.FREE:
                return len(self._held)
            case _:
                return 0

    def _whole(self, count: int, then: _Stage) -> int:
        if len(self._held) < count:
            return 0
        self._stage = then
        return count

    def _link(self) -> int:
        if len(self._held) < _HEAD_BYTES:
            return 0
        size = int.from_bytes(self._held[12:16], "little")
        if self._held[:4] != _MAGIC or not _LINK_BYTES <= size <= MAX_LINK_BYTES:
            raise Breach("the client does not begin with a link of SPICE")
        passed = self._whole(_HEAD_BYTES + size, _Stage.REPLY)
        if passed and self._held[_KIND] != _DISPLAY:
            self._stage = _Stage.FREE
        elif passed:
            common, _, offset = struct.unpack_from("<III", self._held, _HEAD_BYTES + 6)
            self._capabilities = _first(self._held[_HEAD_BYTES:passed], common, offset)
        return passed

    def _init(self) -> int:
        kind, head = struct.Struct("<HI" if self._is_short else "<8xHI4x"), 6 if self._is_short else 18
        if len(self._held) < head:
            return 0
        if kind.unpack_from(self._held) != (_INIT, len(_CACHES)):
            raise Breach("a display's first message is not DISPLAY_INIT")
        return self._whole(head + len(_CACHES), _Stage.ANSWER)

    def _hear_reply(self) -> None:
        size = int.from_bytes(self._heard[12:16], "little")
        if len(self._heard) < _HEAD_BYTES + max(size, _REPLY.size):
            return
        error, common, _, offset = _REPLY.unpack_from(self._heard, _HEAD_BYTES)
        self._capabilities &= _first(self._heard[_HEAD_BYTES : _HEAD_BYTES + size], common, offset)
        self._stage = _Stage.FREE if error else _Stage.TICKET
        del self._heard[: _HEAD_BYTES + size]
        self._skipped = _RESULT_BYTES

    def _hear_messages(self) -> None:
        head, where = (6, 0) if self._is_short else (18, 8)
        while True:
            skipped = min(self._skipped, len(self._heard))
            del self._heard[:skipped]
            self._skipped -= skipped
            if len(self._heard) < head:
                return
            kind, size = struct.unpack_from("<HI", self._heard, where)
            if kind > _INIT and self._stage is _Stage.ANSWER:
                self._stage = _Stage.FREE
                return
            self._skipped = head + size

    @property
    def _is_short(self) -> bool:
        return bool(self._capabilities & _SHORT)


def _first(link: bytearray, common: int, offset: int) -> int:
    return int.from_bytes(link[offset : offset + 4], "little") if common else 0
