"""Parse request heads (RFC 9112, sections 2 to 6) strictly, with a cache for fields that requests repeat.

Refused, although some servers accept it: bare LF or CR, obs-fold, white space before a colon, absolute-form, repeated
``Content-Length``, any ``Transfer-Encoding`` but ``chunked``, both together, no ``Host`` or two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from multidict import CIMultiDict, CIMultiDictProxy

MAX_HEAD_BYTES: Final = 1 << 20
"""Go's ``DefaultMaxHeaderBytes``."""
MAX_FIELDS: Final = 1000
_MAX_REMEMBERED_FIELDS: Final = 100
"""Larger heads are not cached: a parsed field takes about 200 bytes."""
_MAX_LENGTH_DIGITS: Final = 18
_METHODS: Final = {each.encode(): each for each in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}
_TOKEN: Final = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_MAX_METHOD: Final = 32
AUDIT_ID: Final = "Audit-Id"
_ID: Final = re.compile(rb"[0-9A-Za-z-]{1,64}(?=\r\n|\Z)")
_URI: Final = re.compile(rb"[ -~]*(?=\r\n|\Z)")
_OWN: Final = (
    (AUDIT_ID, b"\r\nAudit-Id: ", _ID),
    ("X-Forwarded-Uri", b"\r\nX-Forwarded-Uri: ", _URI),
    ("traceparent", b"\r\ntraceparent: ", _ID),
    ("traceparent", b"\r\nTraceparent: ", _ID),
)
"""As Go and the traceparent standard spell them."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_NOT_IN_FIELDS: Final = bytes(each for each in range(32) if each not in b"\t\r\n") + b"\x7f"
_SECRET: Final = ("Authorization", "Cookie", "Proxy-Authorization", "Sec-WebSocket-Protocol")


class ProtocolError(ValueError):
    """An unparsable request: answered with ``code``, and the connection closes."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.code = code


class Fields:
    """Header fields and their framing, shared by requests with the same bytes."""

    __slots__ = ("accept", "chunked", "close", "content_length", "expects_continue", "headers", "upgrade")

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.headers = headers = CIMultiDictProxy(CIMultiDict(pairs))
        self.content_length, self.chunked = _framing(headers)
        tokens = {each.strip().lower() for value in headers.getall("Connection", ()) for each in value.split(",")}
        self.close = "close" in tokens
        self.upgrade = headers.get("Upgrade", "").strip().lower() if "upgrade" in tokens else ""
        self.expects_continue = headers.get("Expect", "").strip().lower() == "100-continue"
        self.accept = ", ".join(headers.getall("Accept", ()))


class Head:
    """Request line and header fields."""

    __slots__ = ("fields", "method", "old", "own", "target")

    def __init__(self, method: str, target: str, fields: Fields, *, old: bool, own: Mapping[str, str] = _NONE) -> None:
        self.method = method
        self.target = target
        """In origin-form, as sent: ``/path?query``."""
        self.fields = fields
        self.old = old
        """HTTP/1.0: the answer ends the connection."""
        self.own = own
        """Missing in ``fields``."""


class Heads:
    """Parses heads, and caches header fields except those with credentials."""

    def __init__(self, size: int = 512, longest: int = 4096, *, max_fields: int = MAX_FIELDS) -> None:
        """``size`` of the cache (0: none), ``longest`` cached head in bytes, and most fields of a head."""
        self._size = size
        self._longest = longest
        self._max_fields = max_fields
        self._known: dict[bytes, Fields] = {}

    def read(self, raw: bytes) -> Head:
        """Parse a head; ``raw`` ends before the empty line. Raises ProtocolError, also for ambiguous heads."""
        own, raw = _without_own(raw)
        line, _, block = raw.partition(b"\r\n")
        method, target, old = _request_line(line)
        fields = self._known.get(block) or self._read(block)
        if not fields.headers.get("Host") and (not old or "Host" in fields.headers):
            raise ProtocolError("missing required Host header")
        if old and fields.chunked:
            raise ProtocolError("HTTP/1.0 does not support Transfer-Encoding")
        return Head(method, target, fields, old=old, own=own)

    def _read(self, block: bytes) -> Fields:
        fields = Fields(_pairs(block, self._max_fields))
        if self._is_worth_it(block, fields):
            if len(self._known) >= self._size:
                del self._known[next(iter(self._known))]
            self._known[block] = fields
        return fields

    def _is_worth_it(self, block: bytes, fields: Fields) -> bool:
        if not self._size or len(block) > self._longest or len(fields.headers) > _MAX_REMEMBERED_FIELDS:
            return False
        return not any(each in fields.headers for each in _SECRET)


def _without_own(raw: bytes) -> tuple[dict[str, str], bytes]:
    own: dict[str, str] = {}
    for name, line, form in _OWN:
        start = raw.find(line)
        if start >= 0 and (value := form.match(raw, start + len(line))):
            own[name] = value[0].decode("ascii")
            raw = raw[:start] + raw[value.end() :]
    return own, raw


def _request_line(line: bytes) -> tuple[str, str, bool]:
    parts = line.split(b" ")
    if len(parts) != 3:
        raise ProtocolError("malformed request line")
    method = _METHODS.get(parts[0])
    if method is None:
        if not parts[0] or len(parts[0]) > _MAX_METHOD or parts[0].translate(None, _TOKEN):
            raise ProtocolError("malformed method")
        method = parts[0].decode("ascii")
    if parts[2] not in {b"HTTP/1.1", b"HTTP/1.0"}:
        raise ProtocolError("unsupported protocol version", 505 if parts[2].startswith(b"HTTP/") else 400)
    try:
        target = parts[1].decode()
    except UnicodeDecodeError:
        raise ProtocolError("the request's target is not UTF-8") from None
    if not target.startswith("/") or not target.isprintable():
        raise ProtocolError("the request's target must be a path")
    return method, target, parts[2] == b"HTTP/1.0"


def _pairs(block: bytes, most: int) -> list[tuple[str, str]]:
    if not block:
        return []
    if len(block.translate(None, _NOT_IN_FIELDS)) != len(block):
        raise ProtocolError("a header field contains a control character")
    if block.count(b"\r\n") >= most:
        raise ProtocolError("too many header fields", 431)
    lines = block.split(b"\r\n")
    if not block.count(b"\n") == block.count(b"\r") == len(lines) - 1:
        raise ProtocolError("a header field contains a bare CR or LF")
    pairs = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name.translate(None, _TOKEN):
            raise ProtocolError("malformed header field")
        pairs.append((name.decode("ascii"), value.strip(b" \t").decode("utf-8", "replace")))
    return pairs


def _framing(headers: CIMultiDictProxy[str]) -> tuple[int, bool]:
    if len(headers.getall("Host", ())) > 1:
        raise ProtocolError("too many Host headers")
    lengths = headers.getall("Content-Length", ())
    codings = headers.getall("Transfer-Encoding", ())
    if codings:
        if lengths:
            raise ProtocolError("both Content-Length and Transfer-Encoding")
        if len(codings) > 1:
            raise ProtocolError("too many transfer encodings")
        if codings[0].lower() != "chunked":
            raise ProtocolError("unsupported transfer encoding", 501)
        return 0, True
    if not lengths:
        return 0, False
    if len(lengths) > 1 or not lengths[0].isascii() or not lengths[0].isdigit() or len(lengths[0]) > _MAX_LENGTH_DIGITS:
        raise ProtocolError("bad Content-Length")
    return int(lengths[0]), False
