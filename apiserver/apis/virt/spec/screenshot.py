"""The subresource ``screenshot``: a guest's screen as PNG, checked but not decoded.

A guest may control the encoder, so a reader gets only an RGB picture of limited size, in QEMU's three kinds of chunks.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Final

from apiserver.apis.meta.objects import Object

NAME: Final = "screenshot"
FIELD: Final = "png"
SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
MAX_BYTES: Final = 3 << 20
"""libvirt writes the PNG to the pod's cache, which has 4 MiB."""
MAX_TEXT: Final = 512
"""Bytes of a message in place of a picture."""
MAX_SIDE: Final = 16384
MAX_CHUNKS: Final = 2 + MAX_BYTES // 4096
"""More would take the event loop's time. QEMU writes 8 KiB to a chunk."""
_CHUNKS: Final = (b"IHDR", b"IDAT", b"IEND")
_RGB: Final = b"\x08\x02\x00\x00\x00"
"""Eight bits of red, green and blue; the only compression and filter methods; not interlaced."""


def problem(png: bytes) -> str:
    """Return why the chunks of ``png`` are not those of an RGB picture of an allowed size, or "". The pixels are not checked."""
    if not png.startswith(SIGNATURE):
        return "it is no PNG"
    place, kinds = len(SIGNATURE), list[bytes]()
    while place < len(png):
        length, kind = struct.unpack_from(">I4s", png, place) if len(png) - place >= 12 else (len(png), b"")
        if place + 12 + length > len(png):
            return "its last chunk is not whole"
        if kind == b"IHDR" and not _is_header(png[place + 8 : place + 8 + length]):
            return f"it is no RGB picture of at most {MAX_SIDE} by {MAX_SIDE} pixels"
        kinds.append(kind)
        if len(kinds) > MAX_CHUNKS:
            return f"it has more than {MAX_CHUNKS} chunks"
        place += 12 + length
    order = [_CHUNKS.index(each) if each in _CHUNKS else -1 for each in kinds]
    if -1 in order or order != sorted(order) or (kinds.count(b"IHDR"), kinds.count(b"IEND")) != (1, 1) or len(kinds) < len(_CHUNKS):
        return "it has other chunks than a picture"
    return ""


def _is_header(header: bytes) -> bool:
    if len(header) != 8 + len(_RGB):
        return False
    sides = struct.unpack_from(">II", header)
    return all(0 < each <= MAX_SIDE for each in sides) and header[8:] == _RGB


def parse(text: str) -> Object:
    """Check a PNG given as base64 text; return ``{"png": text}``.

    Raises:
        ValueError: it is invalid or too long.
    """
    if len(text) > MAX_BYTES // 3 * 4 + 4:
        raise ValueError(f"longer than {MAX_BYTES} bytes")
    try:
        png = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64: {error}") from error
    if wrong := problem(png):
        raise ValueError(wrong)
    return {FIELD: text}
