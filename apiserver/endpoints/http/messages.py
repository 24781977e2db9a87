"""HTTP requests and responses, as handlers see them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from time import gmtime
from typing import Final, Protocol
from urllib.parse import parse_qsl, unquote

from multidict import CIMultiDict, CIMultiDictProxy, MultiDict, MultiDictProxy

from apiserver.endpoints.http.heads import AUDIT_ID, Head

_MAX_PARAMETERS: Final = 1000
_REMEMBERED_QUERY: Final = 256
_REASONS: Final = {each.value: each.phrase for each in HTTPStatus}
_TCHAR: Final = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_NO_QUERY: Final = MultiDictProxy(MultiDict[str]())
_BODILESS: Final = frozenset({204, 304})
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class BodyError(Exception):
    """A malformed request body."""


class BodyTooLarge(Exception):
    """A request body exceeds its limit; the rest was not read."""


class Carrier(Protocol):
    """The connection, as a request uses it."""

    peer: str
    """``192.0.2.1:4711``."""
    certificate: bytes | None
    """Verified (DER)."""
    tls: ssl.SSLObject | None
    task: asyncio.Task[None] | None

    async def piece(self) -> bytes:
        """Return the next piece of the body, empty at its end. Raises BodyError; Gone once the client is gone."""
        ...

    async def start(self, stream: Stream) -> None:
        """Send a stream's head. Raises Gone; RuntimeError if the request has been answered."""
        ...

    async def send(self, data: bytes) -> None:
        """Send bytes unchanged; return when there is room for more. Raises Gone once the client is gone."""
        ...

    def send_now(self, data: bytes) -> bool:
        """Send bytes unchanged; return whether there is room for more. Raises Gone once the client is gone."""
        ...

    async def room(self) -> None:
        """Wait until there is room for more. Raises Gone."""
        ...

    async def finish(self, stream: Stream) -> None:
        """End a stream, after its head. Raises Gone."""
        ...


class Request:
    """A request. Its body can be read once."""

    __slots__ = ("_path", "_query", "carrier", "fields", "given_audit_id", "method", "old", "own", "target")

    def __init__(self, head: Head, carrier: Carrier) -> None:
        self.carrier = carrier
        self.method = head.method
        self.target = head.target
        self.fields = head.fields
        self.own = head.own
        self.old = head.old
        self.given_audit_id = head.own.get(AUDIT_ID, "") or head.fields.headers.get(AUDIT_ID, "")
        self._path = ""
        self._query: MultiDictProxy[str] | None = None

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The answering task."""
        return self.carrier.task

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        """The header fields without those in ``own``; names ignore case."""
        return self.fields.headers

    @property
    def path(self) -> str:
        """The path, percent-decoded."""
        if not self._path:
            self._path = path_of(self.target)
        return self._path

    @property
    def query(self) -> MultiDictProxy[str]:
        """The query parameters, decoded."""
        found = self._query
        if found is None:
            found = self._query = query_of(self.target)
        return found

    @property
    def content_length(self) -> int | None:
        """Length of the body in bytes; None if chunked."""
        return None if self.fields.chunked else self.fields.content_length

    @property
    def certificate(self) -> bytes | None:
        """The client's verified certificate (DER), or None."""
        return self.carrier.certificate

    async def read(self, limit: int) -> bytes:
        """Return the whole body. Raises BodyTooLarge above ``limit`` bytes, BodyError if malformed, or Gone."""
        length = self.fields.content_length
        if length > limit:
            raise BodyTooLarge
        first = await self.carrier.piece()
        if length and len(first) == length:
            return first
        pieces: list[bytes] = []
        size, piece = 0, first
        while piece:
            size += len(piece)
            if size > limit:
                raise BodyTooLarge
            pieces.append(piece)
            piece = await self.carrier.piece()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def path_of(target: str) -> str:
    """Return a target's path, percent-decoded."""
    path = target.partition("?")[0]
    return unquote(path) if "%" in path else path


def query_of(target: str) -> MultiDictProxy[str]:
    """Return the query parameters of a target, decoded."""
    text = target.partition("?")[2]
    if not text:
        return _NO_QUERY
    return _remembered_query(text) if len(text) <= _REMEMBERED_QUERY else _parse_query(text)


@lru_cache(maxsize=1024)
def _remembered_query(text: str) -> MultiDictProxy[str]:
    return _parse_query(text)


def _parse_query(text: str) -> MultiDictProxy[str]:
    if text.count("&") >= _MAX_PARAMETERS:
        text = "&".join(text.split("&", _MAX_PARAMETERS)[:_MAX_PARAMETERS])
    return MultiDictProxy(MultiDict(parse_qsl(text, keep_blank_values=True, errors="replace")))


class Joined:
    """A long body that is never joined in memory."""

    __slots__ = ("_head", "_number", "_parts", "_tail", "length")

    def __init__(self, head: bytes, parts: Sequence[bytes], tail: bytes, *, number: int, length: int) -> None:
        """Take the parts of ``number`` objects, ``length`` bytes in all, and the text around them."""
        self._head = head
        self._parts = parts
        self._tail = tail
        self._number = number
        self.length = len(head) + length + len(tail)

    def slices(self, size: int, lead: bytes = b"") -> Iterator[bytes]:
        """Yield ``lead``, then the body, joined, in slices of about ``size`` bytes."""
        parts, number = self._parts, self._number
        lead += self._head
        # Cut between objects of equally many parts, because uneven slices cost more.
        step = max(1, size * number // self.length) * len(parts) // max(1, number) or 1
        for start in range(0, len(parts), step):
            end = start + step
            yield b"".join((lead, *parts[start:end], self._tail if end >= len(parts) else b""))
            lead = b""
        if not parts:
            yield lead + self._tail


class Response:
    """A response with its whole body; subclasses write theirs in pieces."""

    __slots__ = ("_headers", "body", "close", "content_type", "encoded", "status")
    prepared: bool = False
    """The head was sent: headers are final."""

    def __init__(
        self,
        *,
        status: int = 200,
        body: bytes | Joined = b"",
        content_type: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.close = False
        self.encoded = b""
        """Encoded header fields of every answer, with CRLF."""
        self._headers = CIMultiDict(headers) if headers else None

    @property
    def headers(self) -> CIMultiDict[str]:
        """The header fields except ``Content-Type``, ``Content-Length``, ``Connection`` and ``Date``."""
        if self._headers is None:
            self._headers = CIMultiDict()
        return self._headers

    def sets(self, name: str) -> bool:
        """Return whether this response has set the header field ``name``."""
        return self._headers is not None and name in self._headers

    @property
    def length(self) -> int:
        """Length of the body in bytes."""
        return len(self.body) if isinstance(self.body, bytes) else self.body.length

    def force_close(self) -> None:
        """Close the connection after this answer."""
        self.close = True

    def head(self, date: bytes, *, close: bool, framing: bytes | None = None) -> bytes:
        """Return the encoded head; ``framing``, a whole field, replaces ``Content-Length``."""
        if framing is None:
            framing = b"" if self.status in _BODILESS else b"Content-Length: %d\r\n" % self.length
        fields = self.encoded
        if self._headers:
            fields += b"".join([_field(name, value) for name, value in self._headers.items()])
        if close:
            fields += b"Connection: close\r\n"
        return b"%b%b%bDate: %b\r\n\r\n" % (begin(self.status, self.content_type), fields, framing, date)


class Stream(Response):
    """A response of unknown length: a handler calls :meth:`prepare`, :meth:`write` for each piece, and :meth:`end` before it returns."""

    __slots__ = ("_carrier", "chunked", "ended", "prepared", "push")

    def __init__(self, request: Request, *, status: int = 200, content_type: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status=status, content_type=content_type, headers=headers)
        self._carrier = request.carrier
        self.push: Callable[[bytes], bool] = request.carrier.send_now
        """Sends a result of :meth:`coded`. False: await :meth:`room`."""
        self.chunked = not request.old
        self.prepared = False
        self.ended = False

    async def prepare(self) -> None:
        """Send the head, once. Raises Gone."""
        if not self.prepared:
            self.prepared = True
            await self._carrier.start(self)

    async def write(self, data: bytes) -> None:
        """Send a piece, after :meth:`prepare`; return when there is room for more. Raises Gone."""
        if data:
            await self._carrier.send(chunk(data) if self.chunked else data)

    def coded(self, data: bytes) -> bytes:
        """Encode a piece, not empty, for :attr:`push`, as a chunk if :attr:`chunked`; answers may share the bytes."""
        return chunk(data) if self.chunked else data

    async def room(self) -> None:
        """Wait until there is room for more. Raises Gone."""
        await self._carrier.room()

    async def end(self) -> None:
        """End the response, once, after its head. Raises Gone."""
        if not self.ended:
            self.ended = True
            await self._carrier.finish(self)


def chunk(data: bytes) -> bytes:
    """Encode ``data`` as one chunk; chunks may be joined. Empty data would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@lru_cache(maxsize=256)
def begin(status: int, content_type: str) -> bytes:
    """Return a response head's status line and ``Content-Type`` (none if empty). Raises ValueError if it is unprintable."""
    text = f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}\r\n"
    if content_type:
        text += f"Content-Type: {_checked(content_type)}\r\n"
    return text.encode()


def _field(name: str, value: str) -> bytes:
    if not _TCHAR.issuperset(name) or not name:
        raise ValueError(f"invalid header field name: {name!r}")
    return f"{name}: {_checked(value)}\r\n".encode()


def _checked(value: str) -> str:
    if not value.isprintable():
        raise ValueError(f"invalid header field value: {value[:64]!r}")
    return value


def date_of(second: int) -> bytes:
    """Format seconds since the epoch for headers (RFC 9110, 5.6.7), without the 1.4 MiB of ``email``."""
    year, month, day, hour, minute, seconds, weekday, *_ = gmtime(second)
    return f"{_DAYS[weekday]}, {day:02} {_MONTHS[month - 1]} {year:04} {hour:02}:{minute:02}:{seconds:02} GMT".encode()


@lru_cache(maxsize=1)
def date_at(second: int) -> bytes:
    """Format seconds as :func:`date_of`, with a cache."""
    return date_of(second)
