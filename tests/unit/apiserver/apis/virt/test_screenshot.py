from __future__ import annotations

import base64
import struct

import pytest

from apiserver.apis.virt.spec import screenshot
from apiserver.apis.virt.spec.screenshot import MAX_BYTES, MAX_CHUNKS, MAX_SIDE, SIGNATURE
from tests.pictures import chunk, header, png

END = chunk(b"IEND")
DATA = chunk(b"IDAT", b"x")


def test_picture_in_base64_is_returned_as_it_is() -> None:
    text = base64.b64encode(png(720, 400)).decode()
    assert screenshot.parse(text) == {"png": text}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no PNG"),
        (b"P6 1 1 255 ...", "no PNG"),
        (png(2, 2)[:-1], "not whole"),
        (SIGNATURE + header(1, 1) + struct.pack(">I", 2**32 - 1) + b"IDAT" + bytes(9), "not whole"),
        (SIGNATURE + header(0, 1) + DATA + END, "no RGB picture"),
        (SIGNATURE + header(1, MAX_SIDE + 1) + DATA + END, "no RGB picture"),
        (SIGNATURE + header(1, 1, b"\x08\x03\x00\x00\x00") + DATA + END, "no RGB picture"),
        (SIGNATURE + header(1, 1, b"\x08\x02\x00\x00\x01") + DATA + END, "no RGB picture"),
        (SIGNATURE + header(1, 1) + chunk(b"iCCP", b"x") + DATA + END, "other chunks"),
        (SIGNATURE + header(1, 1) + DATA, "other chunks"),
        (SIGNATURE + header(1, 1) + END + DATA, "other chunks"),
        (SIGNATURE + header(1, 1) + header(1, 1) + DATA + END, "other chunks"),
        (SIGNATURE + DATA + END, "other chunks"),
        (SIGNATURE + header(1, 1) + chunk(b"IDAT") * (MAX_CHUNKS - 1) + END, "more than 770 chunks"),
    ],
)
def test_anything_but_a_plain_rgb_picture_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        screenshot.parse(base64.b64encode(content).decode())


def test_longest_picture_in_qemus_chunks_is_accepted() -> None:
    chunks = [header(1920, 1080), *[chunk(b"IDAT", bytes(8192))] * (MAX_BYTES // (12 + 8192)), chunk(b"IDAT"), END]
    assert not screenshot.problem(SIGNATURE + b"".join(chunks))


def test_text_that_is_too_long_or_no_base64_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than"):
        screenshot.parse("A" * (MAX_BYTES * 2))
    with pytest.raises(ValueError, match="no base64"):
        screenshot.parse("%%%%")
