"""Gets the properties of an export from an untrusted NBD server.

https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md: fixed newstyle negotiation, ``NBD_OPT_GO``, then a disconnection, as
QEMU does it. The caller limits the time.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import Final

_GREETING: Final = b"NBDMAGICIHAVEOPT"
_OPTION: Final = struct.Struct(">8sII")
_REPLY: Final = struct.Struct(">QIII")
_REPLY_MAGIC: Final = 0x3E889045565A9
_EXPORT: Final = struct.Struct(">HQH")
_FIXED_NEWSTYLE: Final = 1
_GO: Final = 7
_ACKNOWLEDGED: Final = 1
_INFO: Final = 3
_ERROR: Final = 1 << 31
_READ_ONLY: Final = 1 << 1
_DISCONNECT: Final = struct.pack(">IHHQQI", 0x25609513, 0, 2, 0, 0, 0)
_MAX_REPLY: Final = 8 << 10
_MAX_REPLIES: Final = 32
_NAMED: Final = {1: "it does not support NBD_OPT_GO", 2: "its policy", 6: "it has no such export", 5: "it wants TLS"}


class NoExport(Exception):
    """The server violates the protocol, or does not have the export; the message says which."""


@dataclass(frozen=True, slots=True)
class Export:
    """An export of an NBD server."""

    size: int
    read_only: bool


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> Export:
    """Return an NBD server's properties of this export, over a new connection, which the caller closes. Raises NoExport or OSError."""
    try:
        return await _ask(reader, writer, name)
    except asyncio.IncompleteReadError as error:
        raise NoExport("it closed the connection") from error


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> Export:
    if await reader.readexactly(len(_GREETING)) != _GREETING:
        raise NoExport("it is not an NBD server")
    (flags,) = struct.unpack(">H", await reader.readexactly(2))
    if not flags & _FIXED_NEWSTYLE:
        raise NoExport("it does not support fixed newstyle negotiation")
    text = name.encode()
    data = struct.pack(">I", len(text)) + text + struct.pack(">H", 0)
    writer.write(struct.pack(">I", _FIXED_NEWSTYLE) + _OPTION.pack(b"IHAVEOPT", _GO, len(data)) + data)
    await writer.drain()
    found: Export | None = None
    for _ in range(_MAX_REPLIES):
        magic, option, kind, length = _REPLY.unpack(await reader.readexactly(_REPLY.size))
        if magic != _REPLY_MAGIC or option != _GO or length > _MAX_REPLY:
            raise NoExport("its answer is not an NBD option reply")
        said = await reader.readexactly(length)
        if kind & _ERROR:
            raise NoExport(f"it refuses: {_NAMED.get(kind & ~_ERROR, f'error {kind & ~_ERROR}')}")
        if kind == _INFO and length == _EXPORT.size and said[:2] == b"\0\0":
            _, size, flags = _EXPORT.unpack(said)
            found = Export(size, bool(flags & _READ_ONLY))
        if kind == _ACKNOWLEDGED:
            writer.write(_DISCONNECT)
            break
    if found is None:
        raise NoExport("it sent no information about the export")
    return found
