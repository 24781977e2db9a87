"""The part of systemd-logind that a kubelet needs, with shutdowns ordered by a test.

The kubelet delays shutdowns in logind (``Inhibit``) and listens for ``PrepareForShutdown``, but a test bed's node has no systemd. This is
bus and logind in one, with the kubelet as only client.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

SOCKET: Final = "run/dbus/system_bus_socket"
PATH: Final = "/org/freedesktop/login1"
INTERFACE: Final = "org.freedesktop.login1.Manager"
DELAY_SECONDS: Final = 600
"""``InhibitDelayMaxSec``, long enough that the kubelet does not edit logind's configuration."""
CALL, RETURN, ERROR, SIGNAL = 1, 2, 3, 4
NO_REPLY: Final = 1
_PATH, _INTERFACE, _MEMBER, _ERROR, _REPLY_TO, _SENDER, _SIGNATURE, _FDS = 1, 2, 3, 4, 5, 7, 8, 9
_TYPES: Final = {_PATH: "o", _INTERFACE: "s", _MEMBER: "s", _ERROR: "s", _REPLY_TO: "u", _SENDER: "s", _SIGNATURE: "g", _FDS: "u"}


@dataclass(frozen=True, slots=True)
class Message:
    kind: int
    flags: int
    serial: int
    member: str


def encode(kind: int, serial: int, fields: dict[int, str | int], body: bytes = b"", flags: int = 0) -> bytes:
    packed = bytearray()
    for code, value in fields.items():
        packed += bytes(-len(packed) % 8) + bytes([code, 1]) + _TYPES[code].encode() + b"\0"
        if isinstance(value, int):
            packed += struct.pack("<I", value)  # aligned to 4, because each begins at a multiple of 8
        elif _TYPES[code] == "g":
            packed += bytes([len(value)]) + value.encode() + b"\0"
        else:
            packed += struct.pack("<I", len(value)) + value.encode() + b"\0"
    head = struct.pack("<cBBBIII", b"l", kind, flags, 1, len(body), serial, len(packed)) + packed
    return head + bytes(-len(head) % 8) + body


def decode(head: bytes, fields: bytes) -> Message:
    _, kind, flags, _, _, serial, _ = struct.unpack("<cBBBIII", head)
    at, member = 0, ""
    while at < len(fields):
        at += -at % 8
        code, type_ = fields[at], chr(fields[at + 2])
        at += 4
        if type_ == "g":
            at += fields[at] + 2
            continue
        (number,) = struct.unpack_from("<I", fields, at)
        at += 4
        if type_ == "u":
            continue
        if code == _MEMBER:
            member = fields[at : at + number].decode()
        at += number + 1
    return Message(kind, flags, serial, member)


class Logind:
    """A fake logind. ``inhibited``: the kubelet has delayed shutdowns; ``released``: it does so no longer."""

    def __init__(self) -> None:
        self.inhibited = threading.Event()
        self.released = threading.Event()
        self._client: socket.socket | None = None
        self._sending = threading.Lock()
        self._serial = 0

    def prepare_for_shutdown(self, begins: bool) -> None:
        fields: dict[int, str | int] = {_PATH: PATH, _INTERFACE: INTERFACE, _MEMBER: "PrepareForShutdown", _SENDER: ":1.0", _SIGNATURE: "b"}
        self._send(SIGNAL, fields, struct.pack("<I", begins))

    def serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, contextlib.suppress(OSError, EOFError), client.makefile("rb") as stream:
                    self._client = client
                    while True:
                        line = stream.readline()
                        if not line or line == b"BEGIN\r\n":
                            break
                        client.sendall(_authenticated(line.lstrip(b"\0")))
                    while line:
                        self._answer(_read(stream))

    def _answer(self, message: Message) -> None:
        if message.kind != CALL or message.flags & NO_REPLY:
            return
        answer: dict[int, str | int] = {_REPLY_TO: message.serial, _SENDER: ":1.0"}
        match message.member:
            case "Hello":
                self._send(RETURN, {**answer, _SIGNATURE: "s"}, struct.pack("<I", 4) + b":1.1\0")
            case "AddMatch" | "RemoveMatch":
                self._send(RETURN, answer)
            case "Get":  # a variant with a uint64
                self._send(RETURN, {**answer, _SIGNATURE: "v"}, b"\1t\0" + bytes(5) + struct.pack("<Q", DELAY_SECONDS * 1_000_000))
            case "Inhibit":
                self._inhibit(answer)
            case _:
                self._send(ERROR, {**answer, _ERROR: "org.freedesktop.DBus.Error.UnknownMethod"})

    def _inhibit(self, answer: dict[int, str | int]) -> None:
        """Send the caller one end of a pipe, an inhibitor lock until all its copies are closed."""
        ours, theirs = os.pipe()
        try:
            self._send(RETURN, {**answer, _SIGNATURE: "h", _FDS: 1}, struct.pack("<I", 0), theirs)
        finally:
            os.close(theirs)
        self.released.clear()
        self.inhibited.set()
        threading.Thread(target=self._until_released, args=(ours,), daemon=True).start()

    def _until_released(self, end: int) -> None:
        os.read(end, 1)
        os.close(end)
        self.released.set()

    def _send(self, kind: int, fields: dict[int, str | int], body: bytes = b"", *fds: int) -> None:
        with self._sending:
            if self._client is None:
                raise ConnectionError("no kubelet has called")
            self._serial += 1
            socket.send_fds(self._client, [encode(kind, self._serial, fields, body)], fds)


@contextlib.contextmanager
def running(root: pathlib.Path) -> Iterator[Logind]:
    path, logind = root / SOCKET, Logind()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=logind.serve, args=(listener,), daemon=True).start()
        try:
            yield logind
        finally:
            path.unlink(missing_ok=True)
            listener.shutdown(socket.SHUT_RDWR)


def _authenticated(line: bytes) -> bytes:
    match line.split():
        case [b"AUTH", b"EXTERNAL", *_]:
            return b"OK 0123456789abcdef0123456789abcdef\r\n"
        case [b"NEGOTIATE_UNIX_FD"]:
            return b"AGREE_UNIX_FD\r\n"
        case _:
            return b"REJECTED EXTERNAL\r\n"


def _read(stream: BinaryIO) -> Message:
    head = _exactly(stream, 16)
    body, fields = struct.unpack("<4xI4xI", head)
    found = decode(head, _exactly(stream, fields))
    _exactly(stream, -fields % 8 + body)
    return found


def _exactly(stream: BinaryIO, count: int) -> bytes:
    found = stream.read(count)
    if len(found) < count:
        raise EOFError
    return found
