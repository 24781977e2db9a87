"""Parse a connection's bytes into requests, without an event loop. The caller bounds the buffer by pausing the connection."""

from __future__ import annotations

import re
from typing import Final

from apiserver.endpoints.http.heads import MAX_HEAD_BYTES, Head, Heads, ProtocolError

_END: Final = b"\r\n\r\n"
_BARE: Final = re.compile(rb"(?<!\r)\n")
_MAX_CHUNK_LINE: Final = 256
_MAX_CHUNK_DIGITS: Final = 8
_MAX_TRAILER: Final = 8 << 10
_HEXADECIMAL: Final = b"0123456789abcdefABCDEF"
_EXTENSION: Final = bytes(range(32, 127)) + b"\t"


class Reader:
    """One connection's requests: a head, its body until :attr:`complete`, the next head."""

    __slots__ = ("_buffer", "_chunks", "_heads", "_left", "_most", "_searched", "broken", "complete")

    def __init__(self, heads: Heads, most: int = MAX_HEAD_BYTES) -> None:
        """Take the head parser, and the most bytes of a head."""
        self._heads = heads
        self._most = most
        self._buffer: bytes | bytearray = b""  # input in one piece is not copied
        self._searched = 0
        self._left = 0
        self._chunks: _Chunks | None = None
        self.complete = True
        """After the last body's end."""
        self.broken = False
        """The input is unparsable from here on."""

    def __len__(self) -> int:
        return len(self._buffer)

    def receive(self, data: bytes) -> None:
        """Add input."""
        if not self._buffer:
            self._buffer = data
        elif isinstance(self._buffer, bytearray):
            self._buffer += data
        else:
            self._buffer = bytearray(self._buffer) + data

    def head(self) -> Head | None:
        """Remove and parse the next head, after a complete body; None if incomplete. Raises ProtocolError."""
        buffer = self._buffer
        end = buffer.find(_END, self._searched)
        if end < 0:
            if _BARE.search(buffer, max(0, self._searched - 1)):
                raise self._refused(ProtocolError("the request head contains a bare LF"))
            self._searched = max(0, len(buffer) - 3)
            if len(buffer) > self._most + 3:
                raise self._refused(ProtocolError("the request's header fields are too large", 431))
            return None
        if end > self._most:
            raise self._refused(ProtocolError("the request's header fields are too large", 431))
        raw = bytes(buffer[:end])
        if raw.count(b"\n") != raw.count(b"\r\n"):
            raise self._refused(ProtocolError("the request head contains a bare LF"))
        self._take(end + 4)
        self._searched = 0
        try:
            head = self._heads.read(raw)
        except ProtocolError as error:
            raise self._refused(error) from None
        self._left = head.fields.content_length
        self._chunks = _Chunks() if head.fields.chunked else None
        self.complete = not self._left and self._chunks is None
        return head

    def body(self) -> bytes:
        """Remove and return the buffered part of the body; empty at the end (:attr:`complete`) or without input.

        Raises ProtocolError.
        """
        if self.complete:
            return b""
        buffer = self._buffer
        if self._chunks is not None:
            if not isinstance(buffer, bytearray):
                self._buffer = buffer = bytearray(buffer)
            try:
                piece = self._chunks.take(buffer)
            except ProtocolError as error:
                raise self._refused(error) from None
            self.complete = self._chunks.complete
            return piece
        piece = bytes(buffer[: self._left])
        self._take(len(piece))
        self._left -= len(piece)
        self.complete = not self._left
        return piece

    def rest(self) -> bytes:
        """Return and remove all buffered bytes, for another protocol."""
        rest, self._buffer = bytes(self._buffer), b""
        return rest

    def _take(self, count: int) -> None:
        if count >= len(self._buffer):
            self._buffer = b""
        elif isinstance(self._buffer, bytearray):
            del self._buffer[:count]
        else:
            self._buffer = bytearray(self._buffer[count:])

    def drop(self) -> None:
        """Discard the buffer, and set :attr:`broken`."""
        self.broken = True
        self._buffer = b""

    def _refused(self, error: ProtocolError) -> ProtocolError:
        self.drop()
        return error


class _Chunks:
    """Decoder of the chunked coding (RFC 9112, section 7.1); ignores extensions and trailers."""

    __slots__ = ("_ending", "_left", "_trailer", "complete")

    def __init__(self) -> None:
        self._left = 0
        self._ending = False  # before the CRLF after a chunk's data
        self._trailer = -1  # bytes of the trailer section; -1: before it
        self.complete = False

    def take(self, buffer: bytearray) -> bytes:
        pieces = []
        while not self.complete:
            if self._left:
                piece = bytes(buffer[: self._left])
                if not piece:
                    break
                del buffer[: self._left]
                self._left -= len(piece)
                self._ending = not self._left
                pieces.append(piece)
            elif not self._framing(buffer):
                break
        return b"".join(pieces)

    def _framing(self, buffer: bytearray) -> bool:
        if self._ending:
            if len(buffer) < 2:
                if buffer and buffer[0] != 13:
                    raise ProtocolError("malformed chunked body")
                return False
            if buffer[:2] != b"\r\n":
                raise ProtocolError("malformed chunked body")
            del buffer[:2]
            self._ending = False
            return True
        line = _line(buffer)
        if line is None:
            return False
        if self._trailer >= 0:
            self._trailer += len(line) + 2
            if self._trailer > _MAX_TRAILER:
                raise ProtocolError("the trailer of the body is too large", 431)
            self.complete = not line
            return True
        self._left = _size(line)
        if not self._left:
            self._trailer = 0
        return True


def _line(buffer: bytearray) -> bytes | None:
    end = buffer.find(b"\n", 0, _MAX_CHUNK_LINE + 2)
    if end < 0:
        if len(buffer) >= _MAX_CHUNK_LINE + 2:
            raise ProtocolError("malformed chunked body: a line is too long")
        return None
    line = bytes(buffer[:end])
    del buffer[: end + 1]
    if not line.endswith(b"\r") or line.translate(None, _EXTENSION) != b"\r":
        raise ProtocolError("malformed chunked body")
    return line[:-1]


def _size(line: bytes) -> int:
    digits = line.partition(b";")[0].rstrip(b" \t")
    if not digits or len(digits) > _MAX_CHUNK_DIGITS or digits.translate(None, _HEXADECIMAL):
        raise ProtocolError("malformed chunked body: invalid size of a chunk")
    return int(digits, 16)
