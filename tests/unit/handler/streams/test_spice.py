from __future__ import annotations

import struct

import pytest

from handler.streams.spice import MAX_AHEAD_BYTES, Channel
from handler.streams.usbredir import Breach
from tests.spice_peer import CACHES, DISPLAY, INPUTS, LONG, SHORT, link, message, reply

TICKET = b"t" * 132
BEGUN, PICTURE = 3, 314


def ticketed(capabilities: int = SHORT) -> Channel:
    channel = Channel()
    assert channel.from_client(link(DISPLAY)) == link(DISPLAY)
    assert channel.from_client(TICKET) == b""
    assert channel.from_guest(reply(capabilities)) == TICKET
    assert channel.is_fragile
    return channel


@pytest.mark.parametrize("capabilities", [SHORT, LONG])
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_first_picture_of_a_display_frees_the_channel(capabilities: int, size: int) -> None:
    channel = ticketed(capabilities)
    init, more = message(101, CACHES, capabilities), message(1, b"x", capabilities)
    sent = init + more
    assert b"".join(channel.from_client(sent[start : start + size]) for start in range(0, len(sent), size)) == init
    told = bytes(4) + message(BEGUN, b"12345678", capabilities) + message(PICTURE, b"abc", capabilities)
    assert b"".join(channel.from_guest(told[start : start + size]) for start in range(0, len(told), size)) == more
    assert not channel.is_fragile
    assert channel.ending() == b""
    assert channel.from_client(b"anything") == b"anything"


@pytest.mark.parametrize("capabilities", [SHORT, LONG])
@pytest.mark.parametrize("last", [b"", message(101, CACHES)[:9]])
def test_qemu_gets_the_first_message_of_a_viewer_that_left(capabilities: int, last: bytes) -> None:
    channel = ticketed(capabilities)
    assert channel.from_client(last) == b""
    found = channel.ending()
    assert found == message(101, found[-14:], capabilities)
    assert channel.is_fragile
    channel.from_guest(bytes(4) + message(BEGUN, b"", capabilities))
    assert channel.is_fragile
    assert channel.from_guest(message(PICTURE, b"", capabilities)) == b""
    assert not channel.is_fragile


@pytest.mark.parametrize("first", [message(102, CACHES), message(101, CACHES + b"x")])
def test_another_first_message_does_not_reach_qemu(first: bytes) -> None:
    channel = ticketed()
    with pytest.raises(Breach, match="DISPLAY_INIT"):
        channel.from_client(first)
    assert channel.ending()


def test_viewer_without_a_kind_of_ticket_sends_only_the_ticket() -> None:
    channel = Channel()
    channel.from_client(link(DISPLAY, capabilities=1 << 3) + TICKET)
    assert channel.from_guest(reply()) == TICKET[:128]


@pytest.mark.parametrize(("kind", "error"), [(INPUTS, 0), (DISPLAY, 7)])
def test_other_channels_and_refused_ones_are_passed_on(kind: int, error: int) -> None:
    channel = Channel()
    channel.from_client(link(kind))
    channel.from_guest(reply(error=error))
    assert channel.from_client(b"anything") == b"anything"
    assert not channel.is_fragile


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"REDQ" + struct.pack("<III", 2, 2, 17), b"REDQ" + struct.pack("<III", 2, 2, 1 << 20)]
)
def test_something_else_than_a_link_is_refused(sent: bytes) -> None:
    with pytest.raises(Breach, match="SPICE"):
        Channel().from_client(sent)


def test_bytes_that_qemu_does_not_wait_for_are_bounded() -> None:
    channel = ticketed()
    channel.from_client(message(101, CACHES))
    with pytest.raises(Breach, match="before QEMU answers"):
        channel.from_client(bytes(MAX_AHEAD_BYTES + 1))
    channel = Channel()
    channel.from_guest(bytes(MAX_AHEAD_BYTES + 1))
    assert channel.from_client(b"anything") == b"anything"
