from __future__ import annotations

import struct
import zlib

from apiserver.apis.virt.spec.screenshot import SIGNATURE


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def header(width: int, height: int, rest: bytes = b"\x08\x02\x00\x00\x00") -> bytes:
    return chunk(b"IHDR", struct.pack(">II", width, height) + rest)


def png(width: int, height: int) -> bytes:
    rows = zlib.compress((b"\x00" + bytes(3 * width)) * height)
    return SIGNATURE + header(width, height) + chunk(b"IDAT", rows) + chunk(b"IEND")


def decoded(picture: bytes) -> tuple[int, int, bytes]:
    width, height = struct.unpack_from(">II", picture, 16)
    place, data = len(SIGNATURE), b""
    while place < len(picture):
        length, kind = struct.unpack_from(">I4s", picture, place)
        data += picture[place + 8 : place + 8 + length] if kind == b"IDAT" else b""
        place += 12 + length
    return width, height, zlib.decompress(data)
