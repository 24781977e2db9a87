from __future__ import annotations

import pytest

from importer import qcow2_end

CLUSTER = 512
L1, L2, DATA = CLUSTER, 2 * CLUSTER, 3 * CLUSTER
COMPRESSED = 1 << 62


def image(*entries: int, extended: bool = False, l1_entries: int = 1, table: int = L2) -> bytes:
    head = bytearray(CLUSTER)
    head[4:8], head[20:24] = (3).to_bytes(4, "big"), (9).to_bytes(4, "big")
    head[36:40], head[40:48] = l1_entries.to_bytes(4, "big"), L1.to_bytes(8, "big")
    head[79] = 1 << 4 if extended else 0
    words = b"".join(each.to_bytes(8, "big") for each in entries)
    return bytes(head) + (1 << 63 | table).to_bytes(8, "big").ljust(CLUSTER, b"\0") + words.ljust(CLUSTER, b"\0") + bytes(2 * CLUSTER)


def whole_from(made: bytes) -> int:
    return next(size for size in range(CLUSTER, 1 << 20) if qcow2_end.is_whole(lambda at, length: made[at : at + length], size))


@pytest.mark.parametrize(
    ("made", "size"),
    [
        (image(), DATA),
        (image(DATA), DATA + CLUSTER),
        (image(0, 1 << 63 | DATA, 0), DATA + CLUSTER),
        (image(1), DATA),  # zeros without a cluster
        (image(COMPRESSED | DATA + 7), DATA + 512),  # within one sector
        (image(COMPRESSED | 1 << 61 | DATA + 7), DATA + 1024),  # in a further sector
        (image(DATA, 0xFFFF_FFFF, extended=True), DATA + CLUSTER),
        (image(DATA, 1 << 32 | 0b101, extended=True), DATA + 3 * 16),  # the first and the third part of 32 are in use
        (image(DATA, 5 << 32, extended=True), DATA),  # parts that read as zeros
        (image(table=0), 2 * L1 - CLUSTER + 8),
        (image(l1_entries=4), DATA),
    ],
    ids=[
        "empty",
        "data",
        "the second",
        "zeros",
        "compressed",
        "two sectors",
        "all parts",
        "parts",
        "zero parts",
        "no table",
        "a longer L1",
    ],
)
def test_image_is_whole_from_its_last_used_byte_on(made: bytes, size: int) -> None:
    assert whole_from(made) == size


def test_image_with_an_impossible_table_is_never_whole() -> None:
    huge = image(l1_entries=1 << 31)
    assert not qcow2_end.is_whole(lambda at, length: huge[at : at + length], 1 << 60)
