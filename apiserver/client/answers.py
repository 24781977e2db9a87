"""An answer (RFC 9112), as its bytes come: no I/O. What they mean is the business of ``httptools``, which is llhttp, the parser of Node.

What llhttp leaves to others is seen to here: how long a head may be, that an answer to HEAD has no body, which codings, versions and codes
may be believed, and whether anything follows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import httptools

from apiserver.client.transport import NotHTTP

MAX_HEAD_BYTES: Final = 128 << 10
_START: Final = b"HTTP/1."
_EMPTY_LINE: Final = b"\r\n\r\n"


class Head(NamedTuple):
    """Status line and fields of an answer."""

    status: int
    reason: bytes
    fields: list[tuple[bytes, bytes]]
    """Names in small letters, and values."""


class Answer:
    """The answer to one request; answers in between (1xx) are passed over."""

    __slots__ = ("_begun", "_fields", "_has_body", "_is_endless", "_parser", "_reason", "head", "is_last", "is_whole", "parts")

    def __init__(self, *, has_body: bool) -> None:
        """Expect it; to a HEAD request it has no body, whatever it says."""
        self.head: Head | None = None
        self.parts: list[bytes] = []
        """Pieces of the body that have come, until somebody takes them away."""
        self.is_whole = False
        self.is_last = False
        """Of a whole one: the server says no more on this connection, or said more than it was asked."""
        self._has_body = has_body
        self._is_endless = False  # the body ends with the connection
        self._begun = bytearray()  # a head
        self._reason = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._parser: httptools.HttpResponseParser

    def take(self, data: memoryview) -> None:
        """Read what came next.

        Raises:
            NotHTTP: it cannot be read; what came before it is here.
        """
        try:
            if self.head is None:
                data = self._after_heads(data)
            if data:
                self._take_body(data)
        except httptools.HttpParserUpgrade:
            raise NotHTTP("the answer is no HTTP any more: the server speaks another protocol, unasked") from None
        except httptools.HttpParserError as error:
            if not self.is_whole:
                raise NotHTTP(f"the answer is no HTTP: {error}") from error
            self.is_last = True

    def end(self) -> bool:
        """Hear that the connection ended. Return whether the answer is whole: its body may end with it."""
        if self._is_endless and not self.is_whole:
            self._finish()
        return self.is_whole

    def on_status(self, reason: bytes) -> None:
        """As httptools says."""
        self._reason = reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """As httptools says; of trailers, too, which nobody asks for."""
        if self.head is None:
            self._fields.append((name.lower(), value.strip(b" \t")))

    def on_body(self, part: bytes) -> None:
        """As httptools says."""
        if part and not self.is_whole:
            self.parts.append(part)

    def on_headers_complete(self) -> None:
        """As httptools says, of an answer in between, too."""
        if self.head is None and (status := self._parser.get_status_code()) >= 200:
            self.head = Head(status, self._reason, self._fields)
            if not self._has_body:
                self._finish()
        self._reason, self._fields = b"", []

    def on_message_complete(self) -> None:
        """As httptools says, of an answer in between, too."""
        if self.head is not None and not self.is_whole:
            self._finish()

    def _finish(self) -> None:
        self.is_whole = True
        self.is_last = not self._parser.should_keep_alive()
        del self._parser  # it knows this object: a circle would be left to the garbage collector by each answer

    def _after_heads(self, data: memoryview) -> memoryview:
        """Return what follows the head; empty: there is nothing yet."""
        begun = self._begun
        searched = max(0, len(begun) - len(_EMPTY_LINE))
        begun += data
        while self.head is None:
            if not _START.startswith(begun[: len(_START)]):
                raise NotHTTP("the answer is no HTTP/1.1")
            end = begun.find(_EMPTY_LINE, searched) + len(_EMPTY_LINE)
            if end < len(_EMPTY_LINE):
                if len(begun) > MAX_HEAD_BYTES:
                    raise NotHTTP(f"the head of the answer is longer than {MAX_HEAD_BYTES} bytes")
                return memoryview(b"")
            self._parser = httptools.HttpResponseParser(self)  # anew: what one in between says of the connection is not for good
            self._parser.feed_data(begun[:end])
            del begun[:end]
            searched = 0
        self._look(self.head)
        return memoryview(begun)

    def _look(self, head: Head) -> None:
        """Say how the body ends, where that is not llhttp's business."""
        codings = [value.lower() for name, value in head.fields if name == b"transfer-encoding"]
        if codings not in ([], [b"chunked"]):
            raise NotHTTP("the answer is no HTTP: its transfer coding is not chunked")
        self._is_endless = not codings and all(name != b"content-length" for name, _ in head.fields)

    def _take_body(self, data: memoryview) -> None:
        """Read the last byte alone: if the answer was whole before it, more follows. llhttp does not say, and passes over empty lines."""
        for each in (data[:-1], data[-1:]):
            if self.is_whole:
                self.is_last = True
                return
            self._parser.feed_data(each)
