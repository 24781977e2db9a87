"""Checks clients' usbredir packets before QEMU reads them.

QEMU 7.2 and 10.0 abort on a packet that their parser refuses, and on one that they have no function for (filter_filter).
So this module checks each packet's header by the rules of that parser (libusbredirparser 0.15), and limits its data, where QEMU
accepts 128 MiB.

https://gitlab.freedesktop.org/spice/usbredir/-/blob/main/docs/usb-redirection-protocol.md: a packet is a header (type, length of the rest,
id), a header of its type, and data; numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

MAX_PACKET_BYTES: Final = 8 << 20
"""Drivers read a MiB or two at a time."""
MAX_HELLO_BYTES: Final = 4 << 10
"""For a hello, which is checked as a whole."""
MAX_AHEAD_BYTES: Final = 128 << 10
"""A client sends only its hello before it gets QEMU's."""

_VERSION_BYTES: Final = 64
_ENTRIES: Final = 32
_IN: Final = 0x80
BULK_STREAMS, DEVICE_VERSION, PACKET_SIZE, LONG_IDS, LONG_BULK = (1 << each for each in (0, 1, 4, 5, 6))


class Type(IntEnum):
    """Packets that QEMU accepts from a client."""

    HELLO = 0
    DEVICE_CONNECT = 1
    DEVICE_DISCONNECT = 2
    INTERFACE_INFO = 4
    EP_INFO = 5
    CONFIGURATION_STATUS = 8
    ALT_SETTING_STATUS = 11
    ISO_STREAM_STATUS = 14
    INTERRUPT_RECEIVING_STATUS = 17
    BULK_STREAMS_STATUS = 20
    BULK_RECEIVING_STATUS = 27
    CONTROL = 100
    BULK = 101
    ISO = 102
    INTERRUPT = 103
    BUFFERED_BULK = 104


_HEADS: Final[Mapping[Type, int]] = {
    Type.HELLO: _VERSION_BYTES,
    Type.DEVICE_DISCONNECT: 0,
    Type.INTERFACE_INFO: 4 + 4 * _ENTRIES,
    Type.CONFIGURATION_STATUS: 2,
    Type.ALT_SETTING_STATUS: 3,
    Type.ISO_STREAM_STATUS: 2,
    Type.INTERRUPT_RECEIVING_STATUS: 2,
    Type.BULK_STREAMS_STATUS: 9,
    Type.BULK_RECEIVING_STATUS: 6,
    Type.CONTROL: 10,
    Type.ISO: 4,
    Type.INTERRUPT: 4,
    Type.BUFFERED_BULK: 10,
}
"""Headers of fixed length, in bytes."""
_WITH_DATA: Final = frozenset({Type.CONTROL, Type.BULK, Type.ISO, Type.INTERRUPT, Type.BUFFERED_BULK})


class Breach(Exception):
    """A side violated the protocol; the message says how."""


def head_bytes(kind: Type, shared: int) -> int:
    """Return the length of this packet type's header with these shared capabilities."""
    match kind:
        case Type.DEVICE_CONNECT:
            return 10 if shared & DEVICE_VERSION else 8
        case Type.EP_INFO:
            sizes = 2 * _ENTRIES if shared & (PACKET_SIZE | BULK_STREAMS) else 0
            return 3 * _ENTRIES + sizes + (4 * _ENTRIES if shared & BULK_STREAMS else 0)
        case Type.BULK:
            return 10 if shared & LONG_BULK else 8
        case _:
            return _HEADS[kind]


def breach(kind: Type, head: bytes, data_bytes: int, shared: int) -> str:
    """Return the error of a packet of correct length; else empty. ``shared`` are capabilities of both sides."""
    match kind:
        case Type.HELLO:  # the parser ignores an incomplete word
            return "" if len(head) % 4 == 0 else "the capabilities of a hello are words of 4 bytes"
        case Type.INTERFACE_INFO:
            return "" if int.from_bytes(head[:4], "little") <= _ENTRIES else f"there are more than {_ENTRIES} interfaces"
        case Type.INTERRUPT_RECEIVING_STATUS:
            return _wants_input(head[1])
        case Type.BULK_RECEIVING_STATUS:
            return _wants_input(head[4])
        case Type.CONTROL:
            return _of_data(kind, head[0], int.from_bytes(head[8:10], "little"), data_bytes)
        case Type.BULK:
            more = int.from_bytes(head[8:10], "little") if shared & LONG_BULK else 0
            return _of_data(kind, head[0], more << 16 | int.from_bytes(head[2:4], "little"), data_bytes)
        case Type.ISO | Type.INTERRUPT:
            return _of_data(kind, head[0], int.from_bytes(head[2:4], "little"), data_bytes)
        case Type.BUFFERED_BULK:
            return _of_data(kind, head[8], int.from_bytes(head[4:8], "little"), data_bytes)
        case _:
            return ""


def _wants_input(endpoint: int) -> str:
    return "" if endpoint & _IN else f"endpoint {endpoint:#04x} receives nothing"


def _of_data(kind: Type, endpoint: int, said: int, data_bytes: int) -> str:
    """Return what is wrong with the amount of data; else empty. ``said``: the amount in the packet's header.

    For output, this is only what the device took.
    """
    if endpoint & _IN:
        return "" if said == data_bytes else f"a packet of {said} bytes has {data_bytes}"
    if data_bytes or kind in (Type.ISO, Type.BUFFERED_BULK):
        return f"endpoint {endpoint:#04x} gives no data"
    limit = MAX_PACKET_BYTES
    return "" if said <= limit else f"a transfer of {said} bytes is longer than {limit}"


class Packets:
    """Checks a client's packets; needs QEMU's bytes too, for its hello."""

    def __init__(self) -> None:
        self._hello = bytearray()
        self._qemu: int | None = None
        self._client: int | None = None
        self._waiting = bytearray()
        """Unchecked bytes: less than two headers, after QEMU's hello."""
        self._data = 0
        """Bytes of the present packet that are still to come."""

    def from_guest(self, data: bytes) -> bytes:
        """Parse QEMU's hello; when complete, return the client's data that waited for it. Raises Breach."""
        if self._qemu is not None:
            return b""
        self._hello += data[: 12 + MAX_HELLO_BYTES - len(self._hello)]
        if len(self._hello) < 12:
            return b""
        kind, length = struct.unpack_from("<II", self._hello)
        if kind != Type.HELLO or not _VERSION_BYTES <= length <= MAX_HELLO_BYTES:
            raise Breach("QEMU does not begin with a hello")
        if len(self._hello) < 12 + length:
            return b""
        if why := breach(Type.HELLO, bytes(self._hello[12 : 12 + length]), 0, 0):
            raise Breach(why)
        self._qemu = _capabilities(self._hello[12 : 12 + length])
        self._hello.clear()
        return self.from_client(b"")

    def from_client(self, data: bytes) -> bytes:
        """Return the client's data for QEMU: whole headers, and data as it comes. Raises Breach; then nothing of the packet was passed."""
        self._waiting += data
        passed = b"".join(self._passed())
        if len(self._waiting) > MAX_AHEAD_BYTES:
            raise Breach("the client does not wait for QEMU's hello")
        return passed

    def _passed(self) -> Iterator[bytes]:
        while True:
            if self._data:
                part = self._take(min(self._data, len(self._waiting)))
                self._data -= len(part)
                yield part
                if self._data:
                    return
            if self._client is not None and self._qemu is None:
                return
            size = self._next()
            if not size:
                return
            yield self._take(size)

    def _take(self, count: int) -> bytes:
        part = bytes(self._waiting[:count])
        del self._waiting[:count]
        return part

    def _next(self) -> int:
        shared = (self._client or 0) & (self._qemu or 0)
        head = 16 if shared & LONG_IDS else 12
        if len(self._waiting) < 8:
            return 0
        number, length = struct.unpack_from("<II", self._waiting)
        kind = self._type(number)
        own = head_bytes(kind, shared)
        most = MAX_HELLO_BYTES if kind is Type.HELLO else own + MAX_PACKET_BYTES if kind in _WITH_DATA else own
        if not own <= length <= most:
            raise Breach(f"a packet of type {number} has {length} bytes, and not {own}" + (f" to {most}" if most != own else ""))
        size = head + (length if kind is Type.HELLO else own)
        if len(self._waiting) < size:
            return 0
        of_type = bytes(self._waiting[head:size])
        if why := breach(kind, of_type, length - own, shared):
            raise Breach(why)
        if kind is Type.HELLO:
            self._client = _capabilities(of_type)
        self._data = head + length - size
        return size

    def _type(self, number: int) -> Type:
        if (number == Type.HELLO) != (self._client is None):
            raise Breach("a client says hello first, and once")
        try:
            return Type(number)
        except ValueError as error:
            raise Breach(f"packets of type {number} are not for a guest") from error


def _capabilities(hello: bytes | bytearray) -> int:
    found = int.from_bytes(hello[_VERSION_BYTES : _VERSION_BYTES + 4], "little")
    return found if found & PACKET_SIZE else found & ~BULK_STREAMS  # like the parser, ignore streams without sizes
