from __future__ import annotations

import dataclasses
import random
import socket
import struct
from typing import Any

import pytest

from launcher.dhcp import message
from launcher.dhcp.answers import EVERYBODY, Answer, Lease, answer

MAC = "52:54:00:c0:ff:ee"
LEASE = Lease(MAC, "10.0.2.2", "10.0.2.1", "255.255.255.0", 1450, "testvm", ("10.96.0.10",), ("default.svc.cluster.local", "cluster.local"))
MINE, SERVER, FOREIGN = (socket.inet_aton(each) for each in ("10.0.2.2", "10.0.2.1", "192.168.1.7"))


def packet(kind: int | None, *options: tuple[int, bytes], mac: str = MAC, ciaddr: bytes = bytes(4), flags: int = 0, **other: Any) -> bytes:
    header = struct.pack(
        "!BBBBIHH4s4s4s4s16s", other.get("op", 1), other.get("hardware", 1), other.get("length", 6), 0, 0x1234, 0, flags, ciaddr,
        bytes(4), bytes(4), other.get("giaddr", bytes(4)), bytes.fromhex(mac.replace(":", "")),
    )  # fmt: skip
    given = ((message.MESSAGE_TYPE, bytes((kind,))),) if kind is not None else ()
    body = b"".join(bytes((code, len(value))) + value for code, value in (*given, *options))
    cookie: bytes = other.get("cookie", b"\x63\x82\x53\x63")
    tail: bytes = other.get("tail", b"\xff")
    return header + bytes(192) + cookie + body + tail


def read(said: Answer | None) -> tuple[int, bytes, dict[int, bytes]]:
    assert said is not None
    assert len(said.data) >= 300
    assert said.data[0] == 2
    assert said.data[28:34] == bytes.fromhex(MAC.replace(":", ""))
    found = message.parse(b"\x01" + said.data[1:])
    assert found is not None
    assert found.xid == 0x1234
    return found.kind, said.data[16:20], found.options


def test_an_offer_has_all_that_the_client_asks_for_and_no_more() -> None:
    said = answer(packet(message.DISCOVER, (message.PARAMETERS, bytes((1, 3, 6, 15, 26)))), LEASE)
    kind, yiaddr, options = read(said)

    assert (kind, yiaddr) == (message.OFFER, MINE)
    assert options == {
        53: bytes((message.OFFER,)), 54: SERVER, 51: b"\xff" * 4, 1: b"\xff\xff\xff\0", 3: SERVER, 6: socket.inet_aton("10.96.0.10"),
        26: (1450).to_bytes(2, "big"),
    }  # fmt: skip


def test_request_without_a_list_gets_all_options() -> None:
    _, _, options = read(answer(packet(message.DISCOVER), LEASE))
    assert {1, 3, 6, 12, 26, 119} < options.keys()
    assert options[12] == b"testvm"


def test_unknown_settings_are_omitted() -> None:
    _, _, options = read(answer(packet(message.DISCOVER), Lease(MAC, "10.0.2.2", "10.0.2.1", "255.255.255.0", 1500)))
    assert not {6, 12, 119} & options.keys()


@pytest.mark.parametrize(
    ("options", "ciaddr"),
    [([(50, MINE), (54, SERVER)], bytes(4)), ([(50, MINE)], bytes(4)), ([], MINE)],
    ids=["the offer is taken", "after a reboot", "renewed"],
)
def test_the_guests_address_is_granted(options: list[tuple[int, bytes]], ciaddr: bytes) -> None:
    kind, yiaddr, said = read(answer(packet(message.REQUEST, *options, ciaddr=ciaddr), LEASE))
    assert (kind, yiaddr, said[51]) == (message.ACK, MINE, b"\xff" * 4)


def test_another_address_is_refused_before_everybody() -> None:
    """By a broadcast NAK: after moving here the guest requests its former address (RFC 2131, 4.3.2)."""
    said = answer(packet(message.REQUEST, (50, FOREIGN)), LEASE)
    kind, yiaddr, options = read(said)
    assert (kind, yiaddr, set(options)) == (message.NAK, bytes(4), {53, 54})
    assert said is not None
    assert said.destination == EVERYBODY


def test_parameters_alone_come_without_a_lease() -> None:
    kind, yiaddr, options = read(answer(packet(message.INFORM, ciaddr=MINE), LEASE))
    assert (kind, yiaddr) == (message.ACK, bytes(4))
    assert 51 not in options


@pytest.mark.parametrize(
    ("flags", "ciaddr", "destination"),
    [
        (0, bytes(4), "10.0.2.2"),
        (0x8000, bytes(4), EVERYBODY),
        (0x8000, MINE, "10.0.2.2"),
        (0, FOREIGN, "10.0.2.2"),
        (0x8000, FOREIGN, EVERYBODY),
    ],
)
def test_answer_goes_to_the_guest_or_broadcast_only(flags: int, ciaddr: bytes, destination: str) -> None:
    said = answer(packet(message.DISCOVER, flags=flags, ciaddr=ciaddr), LEASE)
    assert said is not None
    assert said.destination == destination


def test_the_clients_name_for_itself_comes_back() -> None:
    _, _, options = read(answer(packet(message.DISCOVER, (61, b"\x01me")), LEASE))
    assert options[61] == b"\x01me"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        packet(message.DISCOVER)[:239],
        packet(message.DISCOVER, mac="52:54:00:c0:ff:ef"),
        packet(message.DISCOVER, op=2),
        packet(message.DISCOVER, hardware=6),
        packet(message.DISCOVER, length=16),
        packet(message.DISCOVER, giaddr=FOREIGN),
        packet(message.DISCOVER, cookie=b"BOOT"),
        packet(None),
        packet(message.DISCOVER, (50, b""), tail=bytes((12, 200, 1))),
        packet(message.DISCOVER, tail=bytes((12,))),
        packet(message.DISCOVER, (message.MESSAGE_TYPE, b"\1")),
        packet(message.REQUEST, (50, MINE), (54, FOREIGN)),
        packet(message.INFORM, ciaddr=FOREIGN),
        *(packet(kind) for kind in (0, message.OFFER, message.DECLINE, message.ACK, message.NAK, message.RELEASE, 9, 255)),
    ],
)
def test_foreign_requests_are_not_answered(data: bytes) -> None:
    assert answer(data, LEASE) is None


def test_an_end_that_is_missing_is_forgiven() -> None:
    assert answer(packet(message.DISCOVER, tail=b""), LEASE) is not None
    assert answer(packet(message.DISCOVER, tail=b"\0\0\0"), LEASE) is not None


def test_an_answer_is_no_larger_than_the_client_takes() -> None:
    wide = Lease(MAC, "10.0.2.2", "10.0.2.1", "255.255.255.0", 1500, search=tuple(f"{'x' * 60}.n{number}.example" for number in range(32)))
    small = answer(packet(message.DISCOVER, (61, b"c" * 255)), wide)
    large = answer(packet(message.DISCOVER, (57, (4000).to_bytes(2, "big"))), wide)

    assert small is not None
    assert len(small.data) <= 576 - 28
    assert 119 not in read(small)[2]
    assert len(read(large)[2][119]) > 2000
    for odd in (b"", b"\0", b"\0\0", b"\0\0\0\0"):
        assert answer(packet(message.DISCOVER, (57, odd)), LEASE) is not None


def test_an_option_that_fits_but_for_its_last_byte_is_left_out() -> None:
    some = Lease(MAC, "10.0.2.2", "10.0.2.1", "255.255.255.0", 1500, search=tuple(f"{'x' * 60}.n{number}.example" for number in range(8)))
    told = set()
    for room in range(576, 1200):
        said = answer(packet(message.DISCOVER, (57, room.to_bytes(2, "big"))), some)
        assert said is not None
        assert len(said.data) <= room - 28
        told.add(119 in read(said)[2])
    assert told == {False, True}


def test_no_packet_whatever_is_in_it_makes_the_server_fail() -> None:
    source = random.Random(10)
    good = packet(message.DISCOVER, (61, b"abc"), (message.PARAMETERS, bytes(range(1, 100))), (57, b"\x05\xdc"))
    answered = 0
    for _ in range(20_000):
        data = bytearray(good)
        for _ in range(source.randrange(1, 6)):
            data[source.randrange(len(data))] = source.randrange(256)
        said = answer(bytes(data[: source.randrange(len(data) + 1)]), LEASE)
        assert said is None or (len(said.data) < 1500 and said.destination in (EVERYBODY, "10.0.2.2"))
        answered += said is not None
    assert answered > 100
    for _ in range(5_000):
        tail = source.randbytes(source.randrange(400))
        answer(packet(source.randrange(1, 9), tail=tail), LEASE)


def test_long_options_come_in_parts_and_are_read_as_one() -> None:
    value = bytes(range(256)) * 2
    parts = message.option(12, value)
    assert len(parts) == len(value) + 3 * 2
    found = message.parse(packet(message.DISCOVER, tail=parts + b"\xff"))
    assert found is not None
    assert found.options[12] == value


def test_search_domains_are_names_as_in_dns() -> None:
    """The example of RFC 3397, section 2: the second name points to the end of the first."""
    assert message.domain_search(["eng.apple.com.".rstrip("."), "marketing.apple.com"]) == (
        b"\3eng\5apple\3com\0" + b"\x09marketing" + b"\xc0\x04"
    )
    assert message.domain_search(["a.b", "b"]) == b"\1a\1b\0" + b"\xc0\x02"
    assert message.domain_search([]) == b""


def test_router_and_routes_are_sent_if_not_the_servers() -> None:
    pods = Lease(MAC, "10.0.2.2", "169.254.75.1", "255.255.255.255", 1500, router="10.0.9.1")
    _, _, options = read(answer(packet(message.DISCOVER), pods))
    assert (options[3], 121 in options) == (bytes((10, 0, 9, 1)), False)
    assert 3 not in read(answer(packet(message.DISCOVER), dataclasses.replace(pods, router="")))[2]

    routes = (("169.254.1.1/32", ""), ("0.0.0.0/0", "169.254.1.1"), ("10.96.0.0/12", "10.0.9.1"))
    _, _, options = read(answer(packet(message.DISCOVER), dataclasses.replace(pods, routes=routes)))
    assert options[121] == bytes((32, 169, 254, 1, 1, 0, 0, 0, 0, 0, 169, 254, 1, 1, 12, 10, 96, 10, 0, 9, 1))  # RFC 3442
