"""zstd by libzstd, with the interface of ``bz2`` and ``lzma``; Python has it from 3.14 on."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Final

MAGICS: Final = (b"\x28\xb5\x2f\xfd", *(bytes((0x50 + kind, 0x2A, 0x4D, 0x18)) for kind in range(16)))
"""First bytes of a frame, and of skippable frames, with which parallel compressors begin."""
LIBRARY: Final = "libzstd.so.1"
_TOO_MUCH_MEMORY: Final = "requires too much memory"


class ZstdError(Exception):
    """Damaged data, or no libzstd; the message has details."""


class _Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("position", ctypes.c_size_t))


@functools.cache
def _library() -> Any:  # noqa: ANN401  ctypes has no types for what a library has
    found = ctypes.CDLL(LIBRARY)
    found.ZSTD_createDStream.restype = ctypes.c_void_p
    found.ZSTD_freeDStream.argtypes = (ctypes.c_void_p,)
    found.ZSTD_decompressStream.argtypes = (ctypes.c_void_p, ctypes.POINTER(_Buffer), ctypes.POINTER(_Buffer))
    found.ZSTD_decompressStream.restype = ctypes.c_size_t
    found.ZSTD_isError.argtypes = (ctypes.c_size_t,)
    found.ZSTD_getErrorName.argtypes = (ctypes.c_size_t,)
    found.ZSTD_getErrorName.restype = ctypes.c_char_p
    return found


class Decompressor:
    """Decompresses one frame. libzstd refuses windows above 128 MiB."""

    def __init__(self) -> None:
        """Create libzstd's decompressor. Raises ZstdError if libzstd is not installed."""
        try:
            self._library = _library()
        except OSError as error:
            raise ZstdError(f"{LIBRARY} is not installed") from error
        self._stream = self._library.ZSTD_createDStream()
        if not self._stream:
            raise MemoryError
        self._left = b""
        self.eof = False
        self.needs_input = True

    def __del__(self) -> None:
        if stream := getattr(self, "_stream", None):
            self._library.ZSTD_freeDStream(stream)

    @property
    def unused_data(self) -> bytes:
        """Return the data after the frame; empty until the frame ends."""
        return self._left if self.eof else b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return at most ``max_length`` bytes from the data and earlier leftovers.

        Raises:
            ZstdError: the data is damaged.
            MemoryError: it needs more memory than allowed.
        """
        data = self._left + data
        given, room = ctypes.create_string_buffer(data, max(len(data), 1)), ctypes.create_string_buffer(max_length)
        source, target = (_Buffer(ctypes.addressof(each), size, 0) for each, size in ((given, len(data)), (room, max_length)))
        before = -1
        result = 1
        while result and target.position < max_length and source.position + target.position > before:
            before = source.position + target.position
            result = self._library.ZSTD_decompressStream(self._stream, ctypes.byref(target), ctypes.byref(source))
            self._check(result)
        self.eof = result == 0
        self._left = data[source.position :]
        self.needs_input = not self.eof and target.position < max_length
        return room.raw[: target.position]

    def _check(self, result: int) -> None:
        if not self._library.ZSTD_isError(result):
            return
        words = self._library.ZSTD_getErrorName(result).decode(errors="replace")
        if _TOO_MUCH_MEMORY in words:
            raise MemoryError(words)
        raise ZstdError(words)
