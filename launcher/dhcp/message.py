"""DHCP messages as bytes: RFC 2131 (format), RFC 2132 (options), RFC 3396 (long options). Pure."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

BOOTREQUEST: Final = 1
BOOTREPLY: Final = 2
ETHERNET: Final = 1
MAC_BYTES: Final = 6
MIN_REPLY: Final = 300
"""Some clients drop shorter replies (RFC 1542, section 2.1)."""
MIN_MAX_SIZE: Final = 576
"""Bytes of a datagram that every client accepts (RFC 2131, section 2)."""
IP_AND_UDP: Final = 28

DISCOVER, OFFER, REQUEST, DECLINE, ACK, NAK, RELEASE, INFORM = range(1, 9)

PAD, END = 0, 255
SUBNET_MASK, ROUTER, DNS_SERVERS, HOST_NAME, MTU, REQUESTED_ADDRESS, LEASE_TIME, MESSAGE_TYPE = 1, 3, 6, 12, 26, 50, 51, 53
SERVER_ID, PARAMETERS, MAX_SIZE, CLIENT_ID, DOMAIN_SEARCH, CLASSLESS_ROUTES = 54, 55, 57, 61, 119, 121

_COOKIE: Final = b"\x63\x82\x53\x63"
# op htype hlen hops xid secs flags ciaddr yiaddr siaddr giaddr chaddr; sname and file follow
_HEADER: Final = struct.Struct("!BBBBIHH4s4s4s4s16s")
_NAMES: Final = 64 + 128
_OPTIONS: Final = _HEADER.size + _NAMES + len(_COOKIE)
_NO_ADDRESS: Final = bytes(4)


@dataclass(frozen=True, slots=True)
class Request:
    """A client's DHCP message."""

    kind: int
    """DISCOVER, REQUEST, …"""
    xid: int
    flags: int
    ciaddr: bytes
    """Zeros: none."""
    mac: bytes
    options: dict[int, bytes]

    @property
    def wants_broadcast(self) -> bool:
        """Return whether the client cannot receive unicast yet."""
        return bool(self.flags & 0x8000)

    @property
    def max_size(self) -> int:
        """Return the maximum bytes of DHCP in an answer (RFC 2132, section 9.10)."""
        said = self.options.get(MAX_SIZE, b"")
        return max(int.from_bytes(said, "big") if len(said) == 2 else 0, MIN_MAX_SIZE) - IP_AND_UDP


def parse(data: bytes) -> Request | None:
    """Return the DHCP request of an Ethernet client on the same link; None for other packets."""
    if len(data) < _OPTIONS:
        return None
    op, hardware, length, _, xid, _, flags, ciaddr, _, _, giaddr, chaddr = _HEADER.unpack_from(data)
    if (op, hardware, length, giaddr) != (BOOTREQUEST, ETHERNET, MAC_BYTES, _NO_ADDRESS):
        return None
    if data[_OPTIONS - len(_COOKIE) : _OPTIONS] != _COOKIE or (options := _options(data)) is None:
        return None
    kind = options.get(MESSAGE_TYPE, b"")
    return Request(kind[0], xid, flags, ciaddr, chaddr[:MAC_BYTES], options) if len(kind) == 1 else None


def _options(data: bytes) -> dict[int, bytes] | None:
    found: dict[int, bytes] = {}
    position = _OPTIONS
    while position < len(data) and (code := data[position]) != END:
        if code == PAD:
            position += 1
            continue
        if position + 1 >= len(data) or (end := position + 2 + data[position + 1]) > len(data):
            return None
        found[code] = found.get(code, b"") + data[position + 2 : end]  # RFC 3396: join split options
        position = end
    return found


def encode(request: Request, yiaddr: bytes, options: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the reply's bytes, without options that exceed the client's size limit."""
    header = _HEADER.pack(
        BOOTREPLY, ETHERNET, MAC_BYTES, 0, request.xid, 0, request.flags, _NO_ADDRESS, yiaddr, _NO_ADDRESS, _NO_ADDRESS, request.mac
    )
    reply = bytearray(header + bytes(_NAMES) + _COOKIE)
    for code, value in options:
        encoded = option(code, value)
        if len(reply) + len(encoded) < request.max_size:
            reply += encoded
    reply.append(END)
    return bytes(reply.ljust(MIN_REPLY, b"\0"))


def option(code: int, value: bytes) -> bytes:
    """Return an option's bytes, split if its value is too long (RFC 3396); nothing for an empty value."""
    parts = [value[start : start + 255] for start in range(0, len(value), 255)]
    return b"".join(bytes((code, len(part))) + part for part in parts)


def classless_routes(routes: Iterable[tuple[str, str]]) -> bytes:
    """Return the value of Classless Static Route (RFC 3442) for (destination, gateway) pairs; an empty gateway: on the link."""
    found = b""
    for destination, gateway in routes:
        network = ipaddress.IPv4Network(destination)
        significant = network.network_address.packed[: -(-network.prefixlen // 8)]
        found += bytes((network.prefixlen,)) + significant + ipaddress.IPv4Address(gateway or 0).packed
    return found


def domain_search(domains: Iterable[str]) -> bytes:
    """Return the value of Domain Search, compressed (RFC 3397, RFC 1035 section 4.1.4)."""
    found = bytearray()
    places: dict[tuple[bytes, ...], int] = {}
    for domain in domains:
        labels = tuple(label.encode() for label in domain.lower().split("."))
        for position in range(len(labels)):
            rest = labels[position:]
            if (place := places.get(rest)) is not None:
                found += struct.pack("!H", 0xC000 | place)
                break
            if len(found) < 0x4000:
                places[rest] = len(found)
            found += bytes((len(rest[0]),)) + rest[0]
        else:
            found.append(0)
    return bytes(found)
