"""Conversion of messages to bytes and back, without sockets.

Each side has one ``Receiver`` per connection, which turns received chunks of any size into messages, and sends what ``encode`` returns.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Final, Generic, NoReturn, TypeVar, get_args

from apiserver.apis.meta.lines import one_line
from launcher.protocol import messages
from launcher.protocol.reading import ProtocolError, read

MAX_LINE_BYTES: Final = 1 << 20
"""The largest VirtualMachine is far smaller; etcd accepts at most 1.5 MiB."""

MAX_REPLY_BYTES: Final = 1 << 19
"""With 64 interfaces of 16 addresses and the longest names, a status takes half."""
MAX_CONTENT_BYTES: Final = 192 << 10
"""For the text of a ``Content`` as JSON: as much as virt-handler accepts from a launcher in two seconds."""
MAX_HELD_BYTES: Final = 1 << 19
"""Memory for a status' texts. virt-handler keeps one status per pod of its node.

One character outside of the BMP quadruples a line's memory, and nested lists can hold sixteen thousand texts; an honest launcher takes at
most two thirds.
"""
MAX_RELEASE: Final = 64
"""Characters of a launcher's release in messages."""
MAX_VERSION: Final = 9999
"""Largest protocol version shown in messages."""

M = TypeVar("M")


class OtherProtocol(ProtocolError):
    """virt-launcher has a protocol version outside of ``messages.SPOKEN``. The text is for users."""


class Receiver(Generic[M]):
    """Converts a byte stream to messages by ``decode``, one per line of at most ``limit`` bytes."""

    def __init__(self, decode: Callable[[bytes], M], limit: int = MAX_LINE_BYTES) -> None:
        self._decode = decode
        self._limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._broken: ProtocolError | None = None

    def receive(self, data: bytes) -> list[M]:
        """Return the messages that ``data`` completes, in order.

        Raises:
            ProtocolError: for an invalid message, even after valid ones, and for each later call.
        """
        if self._broken is not None:
            raise self._broken
        self._buffer += data
        try:
            return self._messages()
        except ProtocolError as error:
            self._buffer.clear()
            self._broken = error
            raise

    def close(self) -> None:
        """Raise ProtocolError if the connection, which has ended, did so in the middle of a line."""
        if self._buffer:
            raise ProtocolError(f"the connection was closed inside a message, after {len(self._buffer)} bytes of it")

    def _messages(self) -> list[M]:
        result: list[M] = []
        while (end := self._buffer.find(b"\n", self._scanned)) >= 0:
            if end > self._limit:
                break
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._scanned = 0
            result.append(self._decode(line))
        self._scanned = len(self._buffer)
        if self._scanned > self._limit:
            raise ProtocolError(f"a line is longer than {self._limit} bytes")
        return result


def requests() -> Receiver[messages.FromHandler]:
    """Return a receiver of virt-handler's requests, for virt-launcher."""
    return Receiver(_decode_call)


def replies() -> Receiver[messages.FromLauncher]:
    """Return a receiver of virt-launcher's messages, for virt-handler."""
    return Receiver(_decode_from_launcher, MAX_REPLY_BYTES)


def encode(message: messages.FromHandler | messages.FromLauncher) -> bytes:
    """Return the line for a message, with its end. Raises ProtocolError if it is too long, or cannot be JSON."""
    if isinstance(message, messages.Call):
        document = {"type": type(message.request).__name__, "id": message.id, "body": asdict(message.request)}
    else:
        document = {"type": type(message).__name__, "body": asdict(message)}
    try:
        line = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"{document['type']} cannot be written as JSON: {error}") from error
    limit = MAX_LINE_BYTES if isinstance(message, messages.Call) else MAX_REPLY_BYTES
    if len(line) > limit:
        raise ProtocolError(f"{document['type']} would take {len(line)} bytes, more than {limit}")
    return line + b"\n"


def fits(text: str) -> bool:
    """Return whether this text fits into a ``Content``."""
    return len(json.dumps(text, ensure_ascii=False).encode(errors="surrogatepass")) <= MAX_CONTENT_BYTES


_REQUESTS: Final[dict[str, type]] = {kind.__name__: kind for kind in get_args(messages.Request)}
_FROM_LAUNCHER: Final[dict[str, type]] = {kind.__name__: kind for kind in get_args(messages.FromLauncher)}


def _decode_call(line: bytes) -> messages.FromHandler:
    document = _parse(line)
    request: messages.Request = read(_kind(document, _REQUESTS), document.get("body"), "body")
    return messages.Call(read(int, document.get("id"), "id"), request)


def _decode_from_launcher(line: bytes) -> messages.FromLauncher:
    document = _parse(line)
    if document.get("type") == messages.Hello.__name__:
        _check_version(document.get("body"))
    message: messages.FromLauncher = read(_kind(document, _FROM_LAUNCHER), document.get("body"), "body")
    if isinstance(message, messages.Content):
        if len(message.text) > MAX_CONTENT_BYTES:
            raise ProtocolError(f"body.text: more than {MAX_CONTENT_BYTES} characters")
    elif _held(message) > MAX_HELD_BYTES:
        raise ProtocolError(f"the texts of a line take more than {MAX_HELD_BYTES} bytes of memory")
    return message


def _held(value: Any) -> int:  # noqa: ANN401  # as in _checked
    """Return the memory in bytes of a message's texts. Message types limit the recursion, unlike JSON."""
    if isinstance(value, str):
        return sys.getsizeof(value)
    if is_dataclass(value):
        return sum(_held(getattr(value, item.name)) for item in fields(value))
    return sum(map(_held, value)) if isinstance(value, tuple) else 0


def _check_version(hello: object) -> None:
    """Raise OtherProtocol for a Hello of an unsupported version, before the rest is checked, which may differ.

    A missing version is 0. One of a wrong type passes.
    """
    version = hello.get("protocol", 0) if isinstance(hello, dict) else None
    if type(version) is not int or version in messages.SPOKEN:
        return  # the type check follows
    release = hello.get("launcher_version") if isinstance(hello, dict) else None
    named = one_line(release, MAX_RELEASE) if isinstance(release, str) else ""
    spoken = ", ".join(map(str, sorted(messages.SPOKEN)))
    number = str(version) if 0 <= version <= MAX_VERSION else "?"
    raise OtherProtocol(f"virt-launcher {named or '?'} uses protocol version {number}, and virt-handler {spoken}")


def _kind(document: dict[str, Any], known: dict[str, type]) -> type:
    name = document.get("type")
    kind = known.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ProtocolError(f"type: expected one of {', '.join(known)}")
    return kind


def _parse(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line.decode(), parse_constant=_no_constant, object_pairs_hook=_object)
        if b"\\u" in line:  # JSON can contain half of a surrogate pair, which UTF-8 cannot encode
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a line is not valid JSON: {type(error).__name__}") from error
    if not isinstance(document, dict):
        raise ProtocolError("a line is not a JSON object")
    return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a field occurs twice")
    return result
