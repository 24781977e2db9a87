"""Router and neighbour advertisements for the guest (RFC 4861; RFC 8106 for DNS). Pure."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from typing import Final

from launcher.ipv6.packets import ALL_NODES, HOP_LIMIT, ICMPV6, UNSPECIFIED, Packet, encode, group_mac, names
from launcher.ipv6.settings import Settings, packed

ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT, NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT = range(133, 137)
SOURCE_MAC, TARGET_MAC, PREFIX, MTU, DNS_SERVERS, DNS_SEARCH = 1, 2, 3, 5, 25, 31

ROUTER_SECONDS: Final = 9000
"""Lifetime of the router after an advertisement, the maximum of section 6.2.1."""
FOR_EVER: Final = 0xFFFFFFFF
NAMES_BYTES: Final = 960
"""For the search list: an advertisement must fit into IPv6's least MTU (1280)."""
_TARGET_END: Final = 24
_MANAGED_AND_OTHER: Final = 0xC0
_ON_LINK: Final = 0x80
_ROUTER, _SOLICITED, _OVERRIDE = 0x80, 0x40, 0x20
_GROUPS_OF_SOLICITED: Final = bytes.fromhex("ff0200000000000000000001ff")


def answer(packet: Packet, told: Settings) -> bytes | None:
    """Return the frame that answers a router or neighbour solicitation; None for another or malformed packet, or another address."""
    if packet.hop_limit != HOP_LIMIT or packet.payload[1] != 0:
        return None
    match packet.payload[0]:
        case kind if kind == ROUTER_SOLICITATION:
            return _advertised(packet, told)
        case kind if kind == NEIGHBOUR_SOLICITATION:
            return _resolved(packet, told)
        case _:
            return None


def advertisement(told: Settings, destination: bytes = ALL_NODES) -> bytes:
    """Return a router advertisement's frame."""
    lifetime = ROUTER_SECONDS if told.is_default else 0
    head = struct.pack("!BBHBBHII", ROUTER_ADVERTISEMENT, 0, 0, 64, _MANAGED_AND_OTHER, lifetime, 0, 0)
    return _frame(told, packed(told.router), destination, head + b"".join(_options(told)))


def _options(told: Settings) -> Iterator[bytes]:
    if told.router_mac:
        yield _option(SOURCE_MAC, told.router_mac)
    yield _option(MTU, struct.pack("!HI", 0, told.mtu))
    if told.on_link:
        network = ipaddress.IPv6Network(told.on_link)
        yield _option(PREFIX, struct.pack("!BBIII", network.prefixlen, _ON_LINK, FOR_EVER, FOR_EVER, 0) + network.network_address.packed)
    if told.dns:
        yield _option(DNS_SERVERS, struct.pack("!HI", 0, FOR_EVER) + b"".join(map(packed, told.dns)))
    if search := names(told.search, NAMES_BYTES):
        yield _option(DNS_SEARCH, struct.pack("!HI", 0, FOR_EVER) + search)


def _option(kind: int, value: bytes) -> bytes:
    units = -(-(2 + len(value)) // 8)
    return bytes((kind, units)) + value.ljust(8 * units - 2, b"\0")


def _advertised(packet: Packet, told: Settings) -> bytes | None:
    options = _parsed(packet.payload[8:])
    if options is None or (packet.source == UNSPECIFIED and SOURCE_MAC in options):
        return None
    return advertisement(told, _sender(packet))


def _resolved(packet: Packet, told: Settings) -> bytes | None:
    target, options = packet.payload[8:_TARGET_END], _parsed(packet.payload[_TARGET_END:])
    if len(target) != len(UNSPECIFIED) or options is None or target not in map(packed, told.answers):
        return None
    flags = _ROUTER | _OVERRIDE
    if packet.source != UNSPECIFIED:
        flags |= _SOLICITED
    elif SOURCE_MAC in options or packet.destination != _GROUPS_OF_SOLICITED + target[13:]:
        return None  # section 7.1.1
    body = struct.pack("!BBHI", NEIGHBOUR_ADVERTISEMENT, 0, 0, flags << 24) + target + _option(TARGET_MAC, told.router_mac)
    return _frame(told, target, _sender(packet), body)


def _sender(packet: Packet) -> bytes:
    return ALL_NODES if packet.source == UNSPECIFIED else packet.source


def _frame(told: Settings, source: bytes, destination: bytes, body: bytes) -> bytes:
    to = group_mac(destination) if destination == ALL_NODES else told.mac
    return encode(to, Packet(told.router_mac or told.server_mac, source, destination, ICMPV6, HOP_LIMIT, body))


def _parsed(data: bytes) -> frozenset[int] | None:
    """Return the types of a message's options; None if an option has no length or exceeds the data."""
    found: set[int] = set()
    while data:
        if len(data) < 2 or data[1] == 0 or 8 * data[1] > len(data):
            return None
        found.add(data[0])
        data = data[8 * data[1] :]
    return frozenset(found)
