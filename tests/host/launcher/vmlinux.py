"""The uncompressed kernel in a bzImage, which QEMU starts by PVH.

The header has the payload's offset and length (Linux, Documentation/arch/x86/boot.rst). The size follows in the last four bytes.
"""

from __future__ import annotations

import ctypes
import lzma
import struct
from collections.abc import Iterator
from typing import Final

LZ4_LEGACY: Final = b"\x02\x21\x4c\x18"
XZ: Final = b"\xfd7zXZ"
_BLOCK_BYTES: Final = 8 << 20
"""Size of the largest uncompressed block in LZ4's legacy format."""


def uncompressed(image: bytes) -> bytes:
    """Return the kernel in a bzImage, or the bzImage itself if the payload has another compression."""
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (image[0x1F1] + 1) * 512 + offset
    payload = image[start : start + length - 4]
    if payload.startswith(LZ4_LEGACY):
        return b"".join(_blocks(payload))
    if payload.startswith(XZ):
        return lzma.LZMADecompressor().decompress(payload)
    return image


def _blocks(payload: bytes) -> Iterator[bytes]:
    library = ctypes.CDLL("liblz4.so.1")  # apt needs it, so each Debian has it
    block = ctypes.create_string_buffer(_BLOCK_BYTES)
    at = len(LZ4_LEGACY)
    while at < len(payload):
        (size,) = struct.unpack_from("<I", payload, at)
        at += 4 + size
        count = library.LZ4_decompress_safe(payload[at - size : at], block, size, _BLOCK_BYTES)
        assert count > 0, "a damaged block"
        yield block.raw[:count]
