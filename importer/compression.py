"""Decompress images piece by piece, with bounded output per step."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from importer import zstd
from importer.failures import EndUnknown, ImportFailed

PIECE: Final = 1 << 20
"""Most bytes of output at once."""
LZMA_BYTES: Final = 128 << 20
"""Memory limit of xz; its highest preset takes 65 MiB."""
_GZIP: Final = 31
"""zlib's value for the gzip format."""


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """zlib's decompressor with the interface of those of bz2 and lzma."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(_GZIP)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


_TOO_MUCH_MEMORY: Final = "Memory usage limit"
"""liblzma's text."""

_KINDS: Final[tuple[tuple[tuple[bytes, ...], str, Callable[[], _Decompressor]], ...]] = (
    ((b"\x1f\x8b",), "gzip", _Gzip),
    ((b"\xfd7zXZ\0",), "xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=LZMA_BYTES)),
    ((b"BZh",), "bzip2", bz2.BZ2Decompressor),
    (zstd.MAGICS, "zstd", zstd.Decompressor),
)
"""(first bytes, equally long, name, decompressor)."""
MAGIC_BYTES: Final = max(len(magics[0]) for magics, _, _ in _KINDS)


def decompressed(pieces: Iterable[bytes], head: bytes) -> Iterator[bytes]:
    """Return ``pieces``, which begin with ``head``, decompressed if necessary.

    The iterator raises ImportFailed for damaged, truncated or unexpected further data.
    """
    for magics, name, make in _KINDS:
        if head.startswith(magics):
            return _explained(_decompressed(pieces, magics, name, make), name)
    return iter(pieces)


def _decompressed(pieces: Iterable[bytes], magics: tuple[bytes, ...], name: str, make: Callable[[], _Decompressor]) -> Iterator[bytes]:
    rest, streams = b"", 1
    begun, ended = False, False
    try:
        decompressor = make()
        for piece in pieces:
            data = rest + piece
            rest = b""
            while True:
                if ended:  # further streams, or zeros, may follow
                    data = data if begun else data.lstrip(b"\0")
                    if len(data) < len(magics[0]):
                        rest = data
                        break
                    if not data.startswith(magics):
                        raise ImportFailed(f"the image is {name} followed by other data")
                    decompressor, ended, streams = make(), False, streams + 1
                begun = True
                if out := decompressor.decompress(data, PIECE):
                    yield out
                data = b""
                if decompressor.eof:
                    data, ended, begun = decompressor.unused_data, True, False
                elif decompressor.needs_input:
                    break
    except EndUnknown:
        if not ended or streams > 1:  # one stream marks its end; of several, the last may be missing
            raise
    if not ended or rest.strip(b"\0"):
        raise ImportFailed(f"the image is damaged: {name}: it is truncated")


def _explained(pieces: Iterable[bytes], name: str) -> Iterator[bytes]:
    try:
        yield from pieces
    except (zlib.error, lzma.LZMAError, zstd.ZstdError, MemoryError, OSError, EOFError, ValueError) as error:
        raise ImportFailed(_refusal(name, error)) from error


def _refusal(name: str, error: Exception) -> str:
    if isinstance(error, MemoryError) or _TOO_MUCH_MEMORY in str(error):
        large = f"a dictionary of more than {LZMA_BYTES >> 20} MiB"
        return f"the image is {name} with {large}, too much for the importer's memory: compress it with a smaller dictionary"
    return f"the image is damaged: {name}: {error}"


def is_compressed(head: bytes) -> bool:
    """Return whether an image's head marks a supported compression."""
    return any(head.startswith(magics) for magics, _, _ in _KINDS)
