from __future__ import annotations

import bz2
import functools
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator

import pytest

from importer import compression
from importer.failures import ImportFailed
from tests.fakes import zstd

DATA = bytes(range(256)) * 5000


KINDS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": functools.lru_cache(4)(bz2.compress),  # half a second
    "zstd": zstd.compress,
}
SKIPPED = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
"""A skippable frame, as parallel compressors write them."""


def cut(data: bytes, length: int) -> Iterator[bytes]:
    return (data[start : start + length] for start in range(0, len(data), length))


def out(data: bytes, length: int = 1000) -> bytes:
    return b"".join(compression.decompressed(cut(data, length), data[: compression.MAGIC_BYTES]))


@pytest.mark.parametrize("compress", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("length", [1, 7, 1000, 1 << 22])
def test_compressed_data_are_decompressed(compress: Callable[[bytes], bytes], length: int) -> None:
    data = DATA if length > 1 else DATA[:20000]

    assert out(compress(data), length) == data


def test_uncompressed_data_pass_unchanged() -> None:
    assert out(DATA) == DATA


@pytest.mark.parametrize("compress", KINDS.values(), ids=KINDS)
def test_streams_behind_each_other_are_one(compress: Callable[[bytes], bytes]) -> None:
    assert out(compress(b"one") + compress(b"two") + bytes(512), 3) == b"onetwo"


@pytest.mark.parametrize("compress", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("end", [-1, -9, 12])
def test_truncated_data_are_detected(compress: Callable[[bytes], bytes], end: int) -> None:
    with pytest.raises(ImportFailed, match="damaged"):
        out(compress(DATA)[:end])


@pytest.mark.parametrize("compress", KINDS.values(), ids=KINDS)
def test_trailing_data_are_detected(compress: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ImportFailed, match="followed by other data"):
        out(compress(DATA) + b"something")


@pytest.mark.parametrize("compress", KINDS.values(), ids=KINDS)
def test_a_flipped_byte_is_noticed(compress: Callable[[bytes], bytes]) -> None:
    data = bytearray(compress(DATA))
    data[len(data) // 2] ^= 0x55

    with pytest.raises(ImportFailed, match="damaged"):
        out(bytes(data))


@pytest.mark.parametrize("compress", KINDS.values(), ids=KINDS)
def test_a_bomb_comes_out_in_small_pieces(compress: Callable[[bytes], bytes]) -> None:
    bomb = compress(bytes(16 << 20))
    pieces = compression.decompressed(iter([bomb]), bomb)

    assert all(len(next(pieces)) <= compression.PIECE for _ in range(10))


def test_xz_that_asks_for_much_memory_is_refused() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3, "nice_len": 4}]
    greedy = lzma.compress(b"x", filters=filters)

    with pytest.raises(ImportFailed, match="the image is xz with a dictionary of more than 128 MiB"):
        out(greedy)


def test_zstd_that_asks_for_much_memory_is_refused() -> None:
    window = (28 - 10) << 3
    with pytest.raises(ImportFailed, match="the image is zstd with a dictionary of more than 128 MiB"):
        out(zstd.MAGIC + bytes((0, window)) + bytes(200))


def test_frames_of_zstd_that_are_skipped_say_nothing() -> None:
    assert out(SKIPPED + zstd.compress(b"one") + SKIPPED + zstd.compress(b"two"), 5) == b"onetwo"


def test_zlib_without_a_header_is_no_gzip() -> None:
    data = zlib.compress(DATA)

    assert out(data) == data
