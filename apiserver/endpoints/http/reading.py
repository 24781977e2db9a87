"""From the bytes of a connection to requests and their bodies, however the bytes were cut. Knows no event loop.

The reader is pulled: bytes stay where they are until somebody asks for the next head or a piece of the body, so whoever does not ask
bounds what is kept (by pausing the connection when enough of it waits). Requests that are sent ahead simply wait behind the body.
"""

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
    """The requests of one connection, one after the other: a head, then its body until :attr:`complete`, then the next head."""

    __slots__ = ("_buffer", "_chunks", "_heads", "_left", "_most", "_searched", "broken", "complete")

    def __init__(self, heads: Heads, most: int = MAX_HEAD_BYTES) -> None:
        """Take what reads heads, and of how many bytes one may be."""
        self._heads = heads
        self._most = most
        self._buffer: bytes | bytearray = b""  # what came in one piece is not copied
        self._searched = 0  # where to go on looking for the end of the head
        self._left = 0
        self._chunks: _Chunks | None = None
        self.complete = True
        """True if the body of the last head was taken to its end."""
        self.broken = False
        """True if what came cannot be read any further."""

    def __len__(self) -> int:
        """Return the number of bytes that wait."""
        return len(self._buffer)

    def receive(self, data: bytes) -> None:
        """Add what came."""
        if not self._buffer:
            self._buffer = data
        elif isinstance(self._buffer, bytearray):
            self._buffer += data
        else:
            self._buffer = bytearray(self._buffer) + data

    def head(self) -> Head | None:
        """Return the next head if all of it is there; the body of the one before must be complete.

        Raises:
            ProtocolError: it is malformed, or too long.
        """
        buffer = self._buffer
        end = buffer.find(_END, self._searched)
        if end < 0:
            if _BARE.search(buffer, max(0, self._searched - 1)):
                raise self._refused(ProtocolError("the head holds a bare LF"))
            self._searched = max(0, len(buffer) - 3)
            if len(buffer) > self._most + 3:
                raise self._refused(ProtocolError("the request's header fields are too large", 431))
            return None
        if end > self._most:
            raise self._refused(ProtocolError("the request's header fields are too large", 431))
        raw = bytes(buffer[:end])
        if raw.count(b"\n") != raw.count(b"\r\n"):
            raise self._refused(ProtocolError("the head holds a bare LF"))
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
        """Return what is there of the body and was not taken yet: nothing means "wait" or, if :attr:`complete`, "all of it".

        Raises:
            ProtocolError: the chunks are malformed.
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
        """Return all that waits: the connection changes its protocol."""
        rest, self._buffer = bytes(self._buffer), b""
        return rest

    def _take(self, count: int) -> None:
        """Forget the first bytes of what waits; the others are not copied for each request that was sent ahead."""
        if count >= len(self._buffer):
            self._buffer = b""
        elif isinstance(self._buffer, bytearray):
            del self._buffer[:count]
        else:
            self._buffer = bytearray(self._buffer[count:])

    def drop(self) -> None:
        """Forget what waits, and read no further."""
        self.broken = True
        self._buffer = b""

    def _refused(self, error: ProtocolError) -> ProtocolError:
        self.drop()
        return error


class _Chunks:
    """The chunked coding of one body (RFC 9112, section 7.1); extensions and trailers are read over."""

    __slots__ = ("_ending", "_left", "_trailer", "complete")

    def __init__(self) -> None:
        self._left = 0
        self._ending = False  # the CRLF behind a chunk's data is due
        self._trailer = -1  # bytes of the trailer section; -1: before it
        self.complete = False

    def take(self, buffer: bytearray) -> bytes:
        """Take what can be decoded out of the buffer."""
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
        """Read one step of what stands between the data; False if more must come."""
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
