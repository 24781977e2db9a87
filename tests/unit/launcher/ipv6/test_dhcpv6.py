from __future__ import annotations

import dataclasses
import random
import struct

import pytest

from launcher.ipv6 import dhcpv6, packets
from launcher.ipv6.dhcpv6 import option
from launcher.ipv6.packets import UDP, Packet
from launcher.ipv6.server import answer
from launcher.ipv6.settings import packed
from tests.unit.launcher.ipv6.test_discovery import GATEWAY_MAC, GUEST, GUEST_MAC, SETTINGS

CLIENT = b"\0\1\0\1" + bytes(4) + GUEST_MAC
SERVER = b"\0\3\0\1" + GATEWAY_MAC
OWN, OTHER = packed(SETTINGS.address), packed("fd10:0:2::99")
FOR_EVER = b"\xff" * 8
IA = (dhcpv6.IA_NA, b"\0\0\0\7" + bytes(8))
GIVEN = b"\0\0\0\7" + FOR_EVER + option(5, OWN + FOR_EVER)


def with_address(*addresses: bytes) -> tuple[int, bytes]:
    return dhcpv6.IA_NA, IA[1] + b"".join(option(5, each + bytes(8)) for each in addresses)


def message(kind: int, *options: tuple[int, bytes], client: bytes | None = CLIENT) -> bytes:
    given = options if client is None else ((dhcpv6.CLIENT_ID, client), *options)
    return bytes((kind,)) + b"abc" + b"".join(option(*each) for each in given)


def read(said: bytes | None) -> tuple[int, dict[int, bytes]]:
    assert said is not None
    found = dhcpv6.parse(said)
    assert found is not None
    assert found.transaction == b"abc"
    assert len(dict(found.options)) == len(found.options)
    return found.kind, dict(found.options)


def test_soliciting_client_is_offered_the_one_address() -> None:
    kind, options = read(dhcpv6.answer(message(dhcpv6.SOLICIT, IA), SETTINGS))
    assert kind == dhcpv6.ADVERTISE
    assert options == {
        1: CLIENT, 2: SERVER, 7: b"\xff", 3: GIVEN, 23: packed("fd00::a") + packed("fd00::b"),
        24: b"\7default\3svc\7cluster\5local\0\7cluster\5local\0",
    }  # fmt: skip


def test_a_client_in_a_hurry_has_it_at_once() -> None:
    kind, options = read(dhcpv6.answer(message(dhcpv6.SOLICIT, IA, (14, b"")), SETTINGS))
    assert (kind, options[3], options[14]) == (dhcpv6.REPLY, GIVEN, b"")


@pytest.mark.parametrize("kind", [dhcpv6.REQUEST, dhcpv6.RENEW, dhcpv6.REBIND])
def test_the_address_is_given_and_others_are_taken_back(kind: int) -> None:
    server = () if kind == dhcpv6.REBIND else ((dhcpv6.SERVER_ID, SERVER),)
    said, options = read(dhcpv6.answer(message(kind, *server, with_address(OTHER, OWN)), SETTINGS))
    assert (said, options[3]) == (dhcpv6.REPLY, GIVEN + option(5, OTHER + bytes(8)))


@pytest.mark.parametrize(
    ("asked", "told"), [(b"\0\x17", {23}), (b"\0\x18\0\x17", {23, 24}), (b"", set()), (b"\0\x17\0", {23}), (b"\0\1\0\2", set())]
)
def test_only_what_is_asked_for_is_told(asked: bytes, told: set[int]) -> None:
    _, options = read(dhcpv6.answer(message(dhcpv6.INFORMATION_REQUEST, (6, asked)), SETTINGS))
    assert options.keys() & {23, 24} == told


def test_information_request_gets_the_other_options() -> None:
    kind, options = read(dhcpv6.answer(message(dhcpv6.INFORMATION_REQUEST, client=None), SETTINGS))
    assert (kind, set(options)) == (dhcpv6.REPLY, {2, 23, 24})


@pytest.mark.parametrize(("addresses", "status"), [((OWN,), 0), ((OTHER,), 4), ((OWN, OTHER), 4)])
def test_a_guest_that_moved_is_told_whether_its_address_is_right(addresses: tuple[bytes, ...], status: int) -> None:
    kind, options = read(dhcpv6.answer(message(dhcpv6.CONFIRM, with_address(*addresses)), SETTINGS))
    assert (kind, options[13]) == (dhcpv6.REPLY, status.to_bytes(2, "big"))
    assert dhcpv6.answer(message(dhcpv6.CONFIRM, IA), SETTINGS) is None


@pytest.mark.parametrize("kind", [dhcpv6.RELEASE, dhcpv6.DECLINE])
def test_a_guest_may_give_its_address_back_and_get_it_again(kind: int) -> None:
    said, options = read(dhcpv6.answer(message(kind, (2, SERVER), with_address(OWN)), SETTINGS))
    assert (said, options[13]) == (dhcpv6.REPLY, b"\0\0")


def test_there_is_one_address_and_no_network_to_give() -> None:
    data = message(dhcpv6.SOLICIT, IA, (3, b"\0\0\0\x08" + bytes(8)), (4, b"\0\0\0\x09"), (25, b"\0\0\0\x0a" + bytes(8)))
    said = dhcpv6.parse(dhcpv6.answer(data, SETTINGS) or b"")
    assert said is not None
    assert [each for each in said.options if each[0] in (3, 4, 25)] == [
        (3, GIVEN),
        (3, b"\0\0\0\x08" + bytes(8) + option(13, b"\0\2")),
        (4, b"\0\0\0\x09" + option(13, b"\0\2")),
        (25, b"\0\0\0\x0a" + bytes(8) + option(13, b"\0\6")),
    ]


SILENT = {
    "nothing": b"",
    "three bytes": b"\1ab",
    "no client": message(dhcpv6.SOLICIT, IA, client=None),
    "a client without a name": message(dhcpv6.SOLICIT, IA, client=b"\0\3"),
    "a client with an absurd name": message(dhcpv6.SOLICIT, IA, client=bytes(131)),
    "another server": message(dhcpv6.REQUEST, (2, SERVER[:-1] + b"\2"), IA),
    "no server": message(dhcpv6.RENEW, IA),
    "a server where none may be": message(dhcpv6.REBIND, (2, SERVER), IA),
    "another server, for information": message(dhcpv6.INFORMATION_REQUEST, (2, CLIENT)),
    "an option without an end": message(dhcpv6.SOLICIT, IA)[:-1],
    "half an option": message(dhcpv6.SOLICIT, IA) + b"\0\3\0",
    "an answer": message(dhcpv6.REPLY, (2, SERVER), IA),
    "a reconfiguration": message(10, (2, SERVER)),
    "a relay": message(12, (2, SERVER)),
    "an unknown kind": message(99, IA),
}


@pytest.mark.parametrize("data", SILENT.values(), ids=SILENT.keys())
def test_nothing_is_said_to_what_is_malformed_or_for_others(data: bytes) -> None:
    assert dhcpv6.answer(data, SETTINGS) is None


def test_the_longest_answer_fits_into_every_link() -> None:
    told = dataclasses.replace(SETTINGS, dns=("fd00::1",) * 3, search=("a" * 60 + ".example",) * 32)
    many = [with_address(*(bytes((0xFD,)) + bytes(14) + bytes((each,)) for each in range(30))), *[(25, bytes(12))] * 30]
    said = dhcpv6.answer(message(dhcpv6.SOLICIT, *many, (14, b""), client=bytes(130)), told)
    assert said is not None
    assert 900 < len(said) <= 1280 - 48


def datagram(data: bytes, source: bytes = GUEST, port: int = 547, length: int | None = None) -> bytes:
    head = struct.pack("!HHHH", 546, port, 8 + len(data) if length is None else length, 0)
    return packets.encode(GATEWAY_MAC, Packet(GUEST_MAC, source, packed("ff02::1:2"), UDP, 1, head + data))


def test_an_answer_goes_to_the_clients_port_and_address() -> None:
    frame = answer(datagram(message(dhcpv6.SOLICIT, IA)), SETTINGS)
    assert frame is not None
    assert frame[:12] == GUEST_MAC + GATEWAY_MAC
    said = packets.parse(frame)
    assert said is not None
    assert (said.source, said.destination) == (packed("fe80::1"), GUEST)
    assert struct.unpack("!HHH", said.payload[:6]) == (547, 546, len(said.payload))
    read(said.payload[8:])


@pytest.mark.parametrize(
    "frame",
    [
        datagram(message(dhcpv6.SOLICIT, IA), port=546),
        datagram(message(dhcpv6.SOLICIT, IA), length=8),
        datagram(message(dhcpv6.SOLICIT, IA), source=OWN),
        datagram(message(dhcpv6.SOLICIT, IA), source=bytes(16)),
        datagram(b""),
    ],
    ids=["another port", "another length", "a global address", "no address", "nothing"],
)
def test_nothing_is_said_to_a_datagram_that_is_none_of_a_clients(frame: bytes) -> None:
    assert answer(frame, SETTINGS) is None


def test_no_message_whatever_is_in_it_makes_the_server_fail() -> None:
    source = random.Random(8)
    good = message(dhcpv6.SOLICIT, IA, with_address(OTHER), (6, b"\0\x17\0\x18"), (14, b""), (25, bytes(12)), (4, bytes(4)))
    answered = 0
    for _ in range(20000):
        data = bytearray(good)
        for _ in range(source.randrange(5)):
            data[source.randrange(len(data))] = source.randrange(256)
        answered += answer(datagram(bytes(data[: source.randrange(len(data) + 1)])), SETTINGS) is not None
    assert answered > 100
