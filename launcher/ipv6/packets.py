"""IPv6 packets in Ethernet frames (RFC 8200, RFC 2464), without extension headers. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

UDP: Final = 17
ICMPV6: Final = 58
ALL_NODES: Final = bytes.fromhex("ff020000000000000000000000000001")
UNSPECIFIED: Final = bytes(16)
HOP_LIMIT: Final = 255
"""Proves that a packet was sent on the link itself (RFC 4861, section 3)."""
_ETHERTYPE: Final = 0x86DD
# destination source type; version and flow, length, next header, hop limit, source, destination
_HEADERS: Final = struct.Struct("!6s6sHIHBB16s16s")
_CHECKSUM_AT: Final = {UDP: 6, ICMPV6: 2}


@dataclass(frozen=True, slots=True)
class Packet:
    """A UDP datagram or ICMPv6 message with its headers' fields. Addresses are bytes."""

    source_mac: bytes
    source: bytes
    destination: bytes
    protocol: int
    hop_limit: int
    payload: bytes
    """Including its header."""


def parse(frame: bytes) -> Packet | None:
    """Return the UDP or ICMPv6 packet in a frame; None if there is none, or it is malformed, cut or has a wrong checksum."""
    if len(frame) < _HEADERS.size:
        return None
    _, source_mac, kind, first, length, protocol, hop_limit, source, destination = _HEADERS.unpack_from(frame)
    payload = frame[_HEADERS.size : _HEADERS.size + length]
    if kind != _ETHERTYPE or first >> 28 != 6 or len(payload) != length or protocol not in _CHECKSUM_AT:
        return None
    if length < 8 or checksum(_pseudo_header(source, destination, protocol, length) + payload):
        return None
    return Packet(source_mac, source, destination, protocol, hop_limit, payload)


def encode(to: bytes, packet: Packet) -> bytes:
    """Return the frame to the MAC address ``to``, with the payload's checksum."""
    length, at = len(packet.payload), _CHECKSUM_AT[packet.protocol]
    payload = packet.payload[:at] + bytes(2) + packet.payload[at + 2 :]
    found = checksum(_pseudo_header(packet.source, packet.destination, packet.protocol, length) + payload) or 0xFFFF
    payload = payload[:at] + found.to_bytes(2, "big") + payload[at + 2 :]
    version = 6 << 28
    return (
        _HEADERS.pack(
            to, packet.source_mac, _ETHERTYPE, version, length, packet.protocol, packet.hop_limit, packet.source, packet.destination
        )
        + payload
    )


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071); 0 for data with a correct checksum."""
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def group_mac(address: bytes) -> bytes:
    """Return the MAC address of a multicast group (RFC 2464, section 7)."""
    return b"\x33\x33" + address[12:]


def _pseudo_header(source: bytes, destination: bytes, protocol: int, length: int) -> bytes:
    return source + destination + struct.pack("!II", length, protocol)


def names(domains: tuple[str, ...], room: int) -> bytes:
    """Return the first of these DNS names, as many as fit into ``room`` bytes, uncompressed (RFC 8106, section 5.2)."""
    found = b""
    for domain in domains:
        labels = [label.encode() for label in domain.lower().split(".")]
        encoded = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
        if len(found) + len(encoded) > room:
            break
        found += encoded
    return found
