from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handler.streams import usbredir
from handler.streams.usbredir import Breach, Packets, Type

EVERY = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7
FEW = 0


def packet(kind: int, body: bytes = b"", *, long: bool = True, length: int | None = None) -> bytes:
    head = struct.pack("<II", kind, len(body) if length is None else length)
    return head + struct.pack("<Q" if long else "<I", 7) + body


def hello(capabilities: int = EVERY) -> bytes:
    return packet(Type.HELLO, b"test".ljust(64, b"\0") + struct.pack("<I", capabilities), long=False)


def control(endpoint: int, said: int, data: bytes = b"") -> bytes:
    return struct.pack("<BBBBHHH", endpoint, 0, 0, 0, 0, 0, said) + data


def bulk(endpoint: int, said: int, data: bytes = b"") -> bytes:
    return struct.pack("<BBHIH", endpoint, 0, said & 0xFFFF, 0, said >> 16) + data


def small(endpoint: int, said: int, data: bytes = b"") -> bytes:
    return struct.pack("<BBH", endpoint, 0, said) + data


def buffered(endpoint: int, said: int, data: bytes = b"") -> bytes:
    return struct.pack("<IIBB", 0, said, endpoint, 0) + data


RIGHT = [
    (Type.INTERFACE_INFO, struct.pack("<I", 32) + bytes(128)),
    (Type.EP_INFO, bytes(288)),
    (Type.DEVICE_CONNECT, bytes(10)),
    (Type.CONFIGURATION_STATUS, bytes(2)),
    (Type.ALT_SETTING_STATUS, bytes(3)),
    (Type.ISO_STREAM_STATUS, bytes(2)),
    (Type.INTERRUPT_RECEIVING_STATUS, b"\0\x81"),
    (Type.BULK_STREAMS_STATUS, bytes(9)),
    (Type.BULK_RECEIVING_STATUS, b"\0\0\0\0\x81\0"),
    (Type.CONTROL, control(0x80, 3, b"abc")),
    (Type.CONTROL, control(0, 300)),
    (Type.BULK, bulk(0x82, 70_000, b"x" * 70_000)),
    (Type.BULK, bulk(2, 70_000)),
    (Type.BULK, bulk(2, usbredir.MAX_PACKET_BYTES)),
    (Type.ISO, small(0x83, 5, b"12345")),
    (Type.INTERRUPT, small(0x81, 1, b"1")),
    (Type.INTERRUPT, small(1, 9)),
    (Type.BUFFERED_BULK, buffered(0x84, 2, b"12")),
    (Type.DEVICE_DISCONNECT, b""),
]
FILTER = packet(23, b"-1,-1,-1,-1,1\0")
"""No client sends it, although the protocol allows it."""
SAID = b"".join(packet(kind, body) for kind, body in RIGHT)


def greeted(capabilities: int = EVERY) -> Packets:
    packets = Packets()
    assert packets.from_guest(hello()) == b""
    assert packets.from_client(hello(capabilities)) == hello(capabilities)
    return packets


@pytest.mark.parametrize(("kind", "body"), RIGHT, ids=str)
def test_valid_packets_pass_unchanged(kind: int, body: bytes) -> None:
    assert greeted().from_client(packet(kind, body)) == packet(kind, body)


@given(st.lists(st.integers(0, len(SAID)), max_size=8), st.integers(0, 8), st.integers(0, len(hello())))
def test_packets_pass_in_any_pieces_and_hello_order(cuts: list[int], when: int, half: int) -> None:
    packets, sent, passed = Packets(), hello() + SAID, b""
    parts = [sent[start:end] for start, end in itertools.pairwise([0, *sorted(cuts), len(sent)])]
    for position, part in enumerate(parts):
        if position == min(when, len(parts) - 1):
            passed += packets.from_guest(hello()[:half])
            passed += packets.from_guest(hello()[half:] + b"and more")
        passed += packets.from_client(part)
    assert passed == sent


def test_two_who_know_little_have_short_heads() -> None:
    packets = greeted(FEW)
    for kind, body in ((Type.EP_INFO, bytes(96)), (Type.DEVICE_CONNECT, bytes(8)), (Type.BULK, bulk(0x81, 1)[:8] + b"x")):
        assert packets.from_client(packet(kind, body, long=False)) == packet(kind, body, long=False)
    sizes = greeted(1 << 4)
    assert sizes.from_client(packet(Type.EP_INFO, bytes(160), long=False))
    streams_without_sizes = greeted(1 << 0)
    assert streams_without_sizes.from_client(packet(Type.EP_INFO, bytes(96), long=False))


def test_a_client_has_to_wait_for_the_hello_of_qemu() -> None:
    packets = Packets()
    assert packets.from_client(hello() + packet(Type.DEVICE_CONNECT, bytes(10))) == hello()
    assert packets.from_guest(hello()[:50]) == b""
    assert packets.from_guest(hello()[50:]) == packet(Type.DEVICE_CONNECT, bytes(10))
    impatient = Packets()
    impatient.from_client(hello())
    with pytest.raises(Breach, match="does not wait"):
        impatient.from_client(bytes(usbredir.MAX_AHEAD_BYTES + 1))


@pytest.mark.parametrize("rest", [1, 2, 3, 5])
def test_capabilities_not_in_whole_words_are_refused(rest: int) -> None:
    """QEMU's parser would expect short headers and misread the following packets."""
    cut = packet(Type.HELLO, bytes(64) + b"\xff" * rest, long=False)
    packets = Packets()
    packets.from_guest(hello())
    with pytest.raises(Breach, match="words of 4 bytes"):
        packets.from_client(cut)
    with pytest.raises(Breach, match="words of 4 bytes"):
        Packets().from_guest(cut)


@pytest.mark.parametrize("words", [0, 1, 3])
def test_a_hello_has_any_number_of_words_of_capabilities(words: int) -> None:
    packets = Packets()
    packets.from_guest(hello())
    told = packet(Type.HELLO, bytes(64) + b"\xff\xff\xff\xff" * words, long=False)
    after = packet(Type.DEVICE_DISCONNECT, long=words > 0)
    assert packets.from_client(told + after) == told + after


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (packet(3), "packets of type 3 are not for a guest"),
        (packet(6, b"1"), "packets of type 6 are not"),
        (packet(22), "packets of type 22 are not"),
        (packet(99, length=1 << 31), "packets of type 99 are not"),
        (packet(-1 & 0xFFFFFFFF), "packets of type 4294967295 are not"),
        (hello(), "first, and once"),
        (packet(Type.DEVICE_CONNECT, bytes(8)), "type 1 has 8 bytes, and not 10$"),
        (packet(Type.DEVICE_CONNECT, bytes(11)), "type 1 has 11 bytes, and not 10$"),
        (packet(Type.DEVICE_DISCONNECT, b"x"), "type 2 has 1 bytes, and not 0$"),
        (packet(Type.EP_INFO, bytes(160)), "and not 288$"),
        (packet(Type.CONTROL, bytes(9)), "has 9 bytes"),
        (packet(Type.BULK, length=10 + usbredir.MAX_PACKET_BYTES + 1), "type 101 has 8388619 bytes, and not 10 to 8388618"),
        (packet(Type.BULK, length=129 << 20), "type 101 has"),
        (packet(Type.INTERFACE_INFO, struct.pack("<I", 33) + bytes(128)), "more than 32 interfaces"),
        (FILTER, "packets of type 23 are not"),
        (packet(Type.INTERRUPT_RECEIVING_STATUS, b"\x81\x01"), "endpoint 0x01 receives nothing"),
        (packet(Type.BULK_RECEIVING_STATUS, b"\x81\x81\x81\x81\x01\x81"), "endpoint 0x01 receives nothing"),
        (packet(Type.CONTROL, control(0x80, 4, b"abc")), "a packet of 4 bytes has 3"),
        (packet(Type.CONTROL, control(0, 3, b"abc")), "endpoint 0x00 gives no data"),
        (packet(Type.BULK, bulk(0x81, 65_537, b"x")), "a packet of 65537 bytes has 1"),
        (packet(Type.BULK, bulk(1, usbredir.MAX_PACKET_BYTES + 1)), "a transfer of 8388609 bytes"),
        (packet(Type.ISO, small(0x81, 0, b"x")), "a packet of 0 bytes has 1"),
        (packet(Type.ISO, small(1, 1)), "endpoint 0x01 gives no data"),
        (packet(Type.INTERRUPT, small(1, 1, b"x")), "endpoint 0x01 gives no data"),
        (packet(Type.BUFFERED_BULK, buffered(1, 0)), "endpoint 0x01 gives no data"),
        (packet(Type.BUFFERED_BULK, buffered(0x81, 2, b"x")), "a packet of 2 bytes has 1"),
    ],
    ids=str,
)
def test_protocol_violations_end_before_qemu_reads_them(sent: bytes, why: str) -> None:
    with pytest.raises(Breach, match=why):
        greeted().from_client(sent)
    drops = greeted()
    passed = (drops.from_client(bytes([each])) for each in sent)
    with pytest.raises(Breach, match=why):
        assert not any(passed)


def test_both_begin_with_a_hello() -> None:
    with pytest.raises(Breach, match="a client says hello first, and once"):
        Packets().from_client(packet(Type.DEVICE_CONNECT, bytes(10)))
    for no_hello in (b"RFB 003.008\n", packet(0, bytes(63), long=False), packet(0, length=1 << 20, long=False)):
        with pytest.raises(Breach, match="QEMU does not begin with a hello"):
            Packets().from_guest(no_hello)


def test_data_are_passed_as_they_come() -> None:
    packets = greeted()
    sent = packet(Type.BULK, bulk(0x81, 1000, bytes(1000)))
    assert packets.from_client(sent[:500]) == sent[:500]
    assert packets.from_client(sent[500:] + packet(Type.DEVICE_DISCONNECT)[:10]) == sent[500:]
