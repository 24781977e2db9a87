from __future__ import annotations

import random

import pytest
from websockets.frames import Frame, Opcode

from apiserver.endpoints.http.slices import SLICE, Slices


def frame(size: int, *, mask: bool) -> bytes:
    return Frame(Opcode.BINARY, b"x" * size).serialize(mask=mask)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("size", [SLICE, 64 << 10, 70 << 10])
def test_long_frame_is_one_slice(size: int, mask: bool) -> None:
    one, slices = frame(size, mask=mask), Slices()
    slices.add(one * 3)
    assert [slices.cut() for _ in range(4)] == [one] * 3 + [b""]


def test_short_frames_are_cut_after_a_slice_and_its_last_frame() -> None:
    slices = Slices()
    slices.add(frame(0, mask=False) * 10_000 + frame(64 << 10, mask=False))
    sizes = []
    while piece := slices.cut():
        sizes.append(len(piece))
    assert set(sizes[:-1]) == {SLICE}
    assert SLICE // 2 < sizes[-1] - (64 << 10) < SLICE


def test_frames_behind_the_rest_of_a_long_one_are_cut_again() -> None:
    slices, long = Slices(), frame(60_000, mask=False)
    slices.add(long[:50_000])
    assert slices.cut() == long[:50_000]
    slices.add(long[50_000:] + frame(0, mask=False) * 10_000)
    assert slices.cut() == long[50_000:]
    assert len(slices.cut()) == SLICE


def test_incomplete_head_is_passed_once() -> None:
    slices, long = Slices(), frame(70 << 10, mask=True)
    slices.add(long[:3])
    assert [slices.cut(), slices.cut(), len(slices)] == [long[:3], b"", 0]
    slices.add(long[3:5])
    assert slices.cut() == long[3:5]
    slices.add(long[5:])
    assert slices.cut() == long[5:]


def test_no_byte_is_lost_or_repeated_however_the_input_comes() -> None:
    chance = random.Random(7)
    whole = b"".join(frame(chance.choice([0, 1, 125, 126, 4000, 65535, 65536]), mask=chance.random() < 0.5) for _ in range(200))
    slices, passed, at = Slices(), bytearray(), 0
    while at < len(whole):
        size = chance.choice([1, 2, 9, 1000, 40_000])
        slices.add(whole[at : at + size])
        at += size
        while piece := slices.cut():
            passed += piece
    assert bytes(passed) == whole
    slices.add(whole[:7])
    assert (slices.cut() or slices.all(), slices.all()) == (whole[:7], b"")


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("size", [1, 125, 126, 65535, 65536])
def test_a_message_is_taken_once_it_is_complete(size: int, mask: bool) -> None:
    one, slices = frame(size, mask=mask), Slices()
    for each in (one[:1], one[1:2], one[2:-1]):
        slices.add(each)
        assert slices.message(size, masked=mask) == b""
    slices.add(one[-1:] + one)
    assert [slices.message(size, masked=mask) for _ in range(2)] == [one, one]
    assert len(slices) == 0


@pytest.mark.parametrize(
    "other",
    [
        frame(101, mask=True),
        frame(10, mask=False),
        Frame(Opcode.TEXT, b"x").serialize(mask=True),
        Frame(Opcode.PING, b"x").serialize(mask=True),
        Frame(Opcode.BINARY, b"x", fin=False).serialize(mask=True),
        bytes([0xC2]) + frame(1, mask=True)[1:],
    ],
    ids=["too long", "unmasked", "text", "ping", "fragment", "compressed"],
)
def test_other_frames_are_left_for_the_decoder(other: bytes) -> None:
    slices = Slices()
    slices.add(other)
    assert slices.message(100, masked=True) is None
    assert slices.cut() == other


def test_no_message_is_taken_from_within_a_frame() -> None:
    slices, inner = Slices(), frame(10, mask=True)
    text = Frame(Opcode.TEXT, inner).serialize(mask=False)
    slices.add(text[:2])
    slices.cut()
    slices.add(text[2:])
    assert slices.message(100, masked=True) is None
