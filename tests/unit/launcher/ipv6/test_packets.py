from __future__ import annotations

import pytest

from launcher.ipv6 import packets
from launcher.ipv6.packets import ICMPV6, UDP, Packet

SOURCE, DESTINATION = bytes.fromhex("fe80" + "00" * 13 + "01"), bytes.fromhex("ff02" + "00" * 13 + "01")
PACKET = Packet(b"\2\0\0\0\0\1", SOURCE, DESTINATION, UDP, 64, bytes.fromhex("0223022200100000") + b"payloads")
FRAME = packets.encode(b"\x33\x33\0\0\0\1", PACKET)


def test_written_packets_are_parsed_back() -> None:
    found = packets.parse(FRAME + b"padding of Ethernet")
    assert found is not None
    assert (found.source_mac, found.source, found.destination, found.hop_limit) == (PACKET.source_mac, SOURCE, DESTINATION, 64)
    assert found.payload[8:] == b"payloads"
    assert FRAME[:6] == packets.group_mac(DESTINATION)


def test_a_checksum_of_zero_is_never_sent() -> None:
    """Zero would mean no checksum, which IPv6 does not allow (RFC 8200, section 8.1)."""
    for number in range(0x10000):
        payload = b"\0\1\0\2\0\x0a\0\0" + number.to_bytes(2, "big")
        if packets.checksum(SOURCE + DESTINATION + b"\0\0\0\x0a\0\0\0\x11" + payload) == 0:
            break
    else:
        raise AssertionError("there is no such payload")
    frame = packets.encode(bytes(6), Packet(bytes(6), SOURCE, DESTINATION, UDP, 64, payload))
    assert frame[54 + 6 : 54 + 8] == b"\xff\xff"


@pytest.mark.parametrize("length", range(len(FRAME)))
def test_a_cut_frame_is_none(length: int) -> None:
    assert packets.parse(FRAME[:length]) is None


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (12, 0x08),
        (14, 0x45),
        (18, 0xFF),
        (20, 0),
        (20, 6),
        (20, 44),
        (20, 60),
        (20, ICMPV6),
        (22, 0xFF),
        (54, 0xFF),
        (60, 0xFF),
        (65, 0xFF),
    ],
)
def test_a_frame_with_a_wrong_byte_is_none(at: int, value: int) -> None:
    assert packets.parse(FRAME[:at] + bytes((value,)) + FRAME[at + 1 :]) is None


def test_names_are_whole_and_as_many_as_there_is_room_for() -> None:
    assert packets.names(("a.Example", "b"), 100) == b"\1a\7example\0\1b\0"
    assert packets.names(("a.Example", "b"), 12) == b"\1a\7example\0"
    assert packets.names(("a.Example", "b"), 10) == b""
