"""Parse a response (RFC 9112) from bytes, by ``httptools`` (llhttp, Node's parser).

llhttp leaves open: a head's length, HEAD without body, accepted codings, versions and codes, and unexpected bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import httptools

from apiserver.client.transport import NotHTTP

MAX_HEAD_BYTES: Final = 128 << 10
_START: Final = b"HTTP/1."
_EMPTY_LINE: Final = b"\r\n\r\n"


class Head(NamedTuple):
    """Status line and header fields of a response."""

    status: int
    reason: bytes
    fields: list[tuple[bytes, bytes]]
    """Names are in lower case."""


class Answer:
    """The response to one request, without interim responses (1xx)."""

    __slots__ = ("_begun", "_fields", "_has_body", "_is_endless", "_parser", "_reason", "head", "is_last", "is_whole", "parts")

    def __init__(self, *, has_body: bool) -> None:
        """``has_body`` is False for the answer to HEAD, which has no body despite its ``Content-Length``."""
        self.head: Head | None = None
        self.parts: list[bytes] = []
        """Not yet taken."""
        self.is_whole = False
        self.is_last = False
        """Complete, and the connection is not reusable."""
        self._has_body = has_body
        self._is_endless = False  # the body ends with the connection
        self._begun = bytearray()  # an incomplete head
        self._reason = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._parser: httptools.HttpResponseParser

    def take(self, data: memoryview) -> None:
        """Parse input into ``head`` and body. Raises NotHTTP; earlier parts stay available."""
        try:
            if self.head is None:
                data = self._after_heads(data)
            if data:
                self._take_body(data)
        except httptools.HttpParserUpgrade:
            raise NotHTTP("invalid HTTP response: the server switched to another protocol") from None
        except httptools.HttpParserError as error:
            if not self.is_whole:
                raise NotHTTP(f"invalid HTTP response: {error}") from error
            self.is_last = True

    def end(self) -> bool:
        """Record the connection's end; return whether the response is complete."""
        if self._is_endless and not self.is_whole:
            self._finish()
        return self.is_whole

    def on_status(self, reason: bytes) -> None:
        """Keep the reason phrase."""
        self._reason = reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header field, but no trailer."""
        if self.head is None:
            self._fields.append((name.lower(), value.strip(b" \t")))

    def on_body(self, part: bytes) -> None:
        """Keep a part of the body."""
        if part and not self.is_whole:
            self.parts.append(part)

    def on_headers_complete(self) -> None:
        """Set ``head``, unless the response is interim (1xx)."""
        if self.head is None and (status := self._parser.get_status_code()) >= 200:
            self.head = Head(status, self._reason, self._fields)
            if not self._has_body:
                self._finish()
        self._reason, self._fields = b"", []

    def on_message_complete(self) -> None:
        """Set ``is_whole``, unless the response is interim (1xx)."""
        if self.head is not None and not self.is_whole:
            self._finish()

    def _finish(self) -> None:
        self.is_whole = True
        self.is_last = not self._parser.should_keep_alive()
        del self._parser  # breaks a cycle

    def _after_heads(self, data: memoryview) -> memoryview:
        begun = self._begun
        searched = max(0, len(begun) - len(_EMPTY_LINE))
        begun += data
        while self.head is None:
            if not _START.startswith(begun[: len(_START)]):
                raise NotHTTP("the response is not HTTP/1.1")
            end = begun.find(_EMPTY_LINE, searched) + len(_EMPTY_LINE)
            if end < len(_EMPTY_LINE):
                if len(begun) > MAX_HEAD_BYTES:
                    raise NotHTTP(f"the head of the response is longer than {MAX_HEAD_BYTES} bytes")
                return memoryview(b"")
            # new: interim responses must not affect the connection's reuse
            self._parser = httptools.HttpResponseParser(self)
            self._parser.feed_data(begun[:end])
            del begun[:end]
            searched = 0
        self._look(self.head)
        return memoryview(begun)

    def _look(self, head: Head) -> None:
        codings = [value.lower() for name, value in head.fields if name == b"transfer-encoding"]
        if codings not in ([], [b"chunked"]):
            raise NotHTTP("invalid HTTP response: its transfer coding is not chunked")
        self._is_endless = not codings and all(name != b"content-length" for name, _ in head.fields)

    def _take_body(self, data: memoryview) -> None:
        """Parse input, its last byte separately: llhttp does not report bytes after a body's end."""
        for each in (data[:-1], data[-1:]):
            if self.is_whole:
                self.is_last = True
                return
            self._parser.feed_data(each)
