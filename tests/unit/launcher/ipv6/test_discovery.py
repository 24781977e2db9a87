from __future__ import annotations

import dataclasses
import random
import socket

import pytest

from launcher.ipv6 import discovery, packets
from launcher.ipv6.packets import ALL_NODES, ICMPV6, UNSPECIFIED, Packet
from launcher.ipv6.server import answer
from launcher.ipv6.settings import Settings, packed

GUEST_MAC, GATEWAY_MAC = bytes.fromhex("525400c0ffee"), bytes.fromhex("020000000001")
SETTINGS = Settings(
    GUEST_MAC, "fd10:0:2::2", "fe80::1", GATEWAY_MAC, 1450, "fe80::1", GATEWAY_MAC, ("fe80::1", "fd10:0:2::1"),
    dns=("fd00::a", "fd00::b"), search=("default.svc.cluster.local", "cluster.local"),
)  # fmt: skip
GUEST, ROUTER = packed("fe80::5054:ff:fec0:ffee"), packed("fe80::1")
ROUTERS = packed("ff02::2")
OWN_MAC = b"\1\1" + GUEST_MAC


def asked(
    body: bytes, source: bytes = GUEST, destination: bytes = ROUTERS, *, hop_limit: int = 255, kind: int = 133, code: int = 0
) -> bytes:
    payload = bytes((kind, code, 0, 0)) + body
    return packets.encode(GATEWAY_MAC, Packet(GUEST_MAC, source, destination, ICMPV6, hop_limit, payload))


def solicitation(target: str, source: bytes = GUEST, destination: str = "", options: bytes = OWN_MAC) -> bytes:
    group = packed("ff02::1:ff00:0")[:13] + packed(target)[13:]
    return asked(bytes(4) + packed(target) + options, source, packed(destination) if destination else group, kind=135)


def read(frame: bytes | None) -> Packet:
    assert frame is not None
    found = packets.parse(frame)
    assert found is not None
    assert found.hop_limit == 255
    return found


def options(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    while data:
        found.append((data[0], data[2 : 8 * data[1]]))
        data = data[8 * data[1] :]
    return found


def test_an_advertisement_says_all_that_a_guest_needs() -> None:
    said = read(answer(asked(bytes(4) + OWN_MAC), SETTINGS))
    assert (said.source, said.destination, said.source_mac) == (ROUTER, GUEST, GATEWAY_MAC)
    assert said.payload[:2] == b"\x86\0"
    assert said.payload[4:16] == b"\x40\xc0" + (9000).to_bytes(2, "big") + bytes(8)  # hop limit, M and O, router lifetime
    assert options(said.payload[16:]) == [
        (1, GATEWAY_MAC),
        (5, b"\0\0" + (1450).to_bytes(4, "big")),
        (25, b"\0\0\xff\xff\xff\xff" + packed("fd00::a") + packed("fd00::b")),
        (31, b"\0\0\xff\xff\xff\xff\7default\3svc\7cluster\5local\0\7cluster\5local\0" + bytes(6)),
    ]


def test_empty_options_are_left_out() -> None:
    said = read(discovery.advertisement(dataclasses.replace(SETTINGS, router_mac=b"", dns=(), search=(), is_default=False)))
    assert (said.destination, said.payload[6:8]) == (ALL_NODES, b"\0\0")
    assert [kind for kind, _ in options(said.payload[16:])] == [5]


def test_on_link_prefix_is_advertised_without_autoconfiguration() -> None:
    said = read(discovery.advertisement(dataclasses.replace(SETTINGS, on_link="fd00:10:244::/64")))
    (told,) = (value for kind, value in options(said.payload[16:]) if kind == 3)
    assert told == b"\x40\x80" + b"\xff" * 8 + bytes(4) + packed("fd00:10:244::")


def test_the_longest_advertisement_fits_into_every_link() -> None:
    most = dataclasses.replace(SETTINGS, on_link="fd00::/64", dns=("fd00::1",) * 3, search=("a" * 60 + ".example",) * 32)
    assert 1000 < len(discovery.advertisement(most)) - 14 <= 1280


def test_solicitation_without_address_is_answered_to_all_nodes() -> None:
    frame = answer(asked(bytes(4), UNSPECIFIED), SETTINGS)
    assert read(frame).destination == ALL_NODES
    assert frame is not None
    assert frame[:6] == bytes.fromhex("333300000001")


@pytest.mark.parametrize("target", ["fe80::1", "fd10:0:2::1"])
def test_the_gateways_addresses_are_the_gateways(target: str) -> None:
    said = read(answer(solicitation(target), SETTINGS))
    assert (said.source, said.destination) == (packed(target), GUEST)
    assert said.payload[:2] == b"\x88\0"
    assert said.payload[4:] == b"\xe0\0\0\0" + packed(target) + b"\2\1" + GATEWAY_MAC
    assert read(answer(solicitation(target, destination=target, options=b""), SETTINGS)).destination == GUEST


def test_guest_claiming_the_gateway_address_gets_a_conflict() -> None:
    said = read(answer(solicitation("fe80::1", UNSPECIFIED, options=b"\x0e\1" + bytes(6)), SETTINGS))
    assert (said.destination, said.payload[4]) == (ALL_NODES, 0xA0)


SILENT = {
    "not sent on the link": asked(bytes(4), hop_limit=254),
    "a code": asked(bytes(4), code=1),
    "an option of no length": asked(bytes(4) + b"\1\0" + bytes(6)),
    "an option that is longer than the message": asked(bytes(4) + b"\1\2" + bytes(6)),
    "half an option": asked(bytes(4) + b"\1"),
    "a MAC address, and no address": asked(bytes(4) + OWN_MAC, UNSPECIFIED),
    "an advertisement": asked(bytes(12), kind=134),
    "a redirect": asked(bytes(36), kind=137),
    "an echo": asked(bytes(8), kind=128),
    "another's address": solicitation("fe80::2"),
    "the guest's own": solicitation("fd10:0:2::2"),
    "half an address": asked(bytes(4) + packed("fe80::1")[:12], kind=135),
    "an option of no length, of a solicitation": solicitation("fe80::1", options=b"\1\0" + bytes(6)),
    "is it free, and a MAC address": solicitation("fe80::1", UNSPECIFIED),
    "is it free, to itself": solicitation("fe80::1", UNSPECIFIED, "fe80::1", b""),
    "another MAC address": packets.encode(GATEWAY_MAC, Packet(GATEWAY_MAC, GUEST, ROUTERS, ICMPV6, 255, b"\x85\0\0\0" + bytes(4))),
}


@pytest.mark.parametrize("frame", SILENT.values(), ids=SILENT.keys())
def test_nothing_is_said_to_what_is_malformed_or_about_others(frame: bytes) -> None:
    assert answer(frame, SETTINGS) is None


def test_no_frame_whatever_is_in_it_makes_the_server_fail() -> None:
    source = random.Random(6)
    good = [asked(bytes(4) + OWN_MAC), solicitation("fe80::1"), solicitation("fe80::1", UNSPECIFIED, options=b"\x0e\1" + bytes(6))]
    answered = 0
    for _ in range(20000):
        payload = bytearray(source.choice(good)[54:])
        for _ in range(source.randrange(4)):
            payload[source.randrange(len(payload))] = source.randrange(256)
        cut = bytes(payload[: source.randrange(len(payload) + 1)]).ljust(8, b"\0")
        frame = packets.encode(GATEWAY_MAC, Packet(GUEST_MAC, GUEST, ROUTERS, ICMPV6, 255, cut))
        answered += answer(frame, SETTINGS) is not None
    assert answered > 1000


def test_addresses_are_written_as_the_kernel_does() -> None:
    assert packed("fd10:0:2::2") == socket.inet_pton(socket.AF_INET6, "fd10:0:2::2")
