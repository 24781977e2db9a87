from __future__ import annotations

import socket
import struct

BROADCAST = "ff:ff:ff:ff:ff:ff"
IPV4, ARP, IPV6, VLAN, PROVIDER_VLAN = 0x0800, 0x0806, 0x86DD, 0x8100, 0x88A8
UDP, TCP, ICMP, ICMPV6 = 17, 6, 1, 58


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(source: str, kind: int, payload: bytes, destination: str = BROADCAST) -> bytes:
    return mac(destination) + mac(source) + struct.pack("!H", kind) + payload


def tagged(frame: bytes, number: int, kind: int = VLAN) -> bytes:
    return frame[:12] + struct.pack("!HH", kind, number) + frame[12:]


def arp(operation: int, sender_mac: str, sender: str, target: str, target_mac: str = "00:00:00:00:00:00") -> bytes:
    head = struct.pack("!HHBBH", 1, IPV4, 6, 4, operation)
    return head + mac(sender_mac) + socket.inet_aton(sender) + mac(target_mac) + socket.inet_aton(target)


def udp(
    source: str, destination: str, payload: bytes, ports: tuple[int, int] = (4000, 4001), *, offset: int = 0, checksum_is: int = 0
) -> bytes:
    """Return an IPv4 packet with a UDP datagram; with ``offset`` (bytes, a multiple of 8), a later fragment. ``checksum_is`` 0: none."""
    datagram = struct.pack("!HHHH", *ports, 8 + len(payload), checksum_is) + payload
    return ipv4(source, destination, UDP, datagram, offset=offset)


def ping(source: str, destination: str) -> bytes:
    return icmp(source, destination, 8, b"ping")


def icmp(source: str, destination: str, kind: int, payload: bytes) -> bytes:
    message = struct.pack("!BBHHH", kind, 0, 0, 7, 1) + payload
    message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
    return ipv4(source, destination, ICMP, message)


def tcp(
    source: str, destination: str, flags: int, payload: bytes, *, ports: tuple[int, int] = (4000, 4001), acknowledged: int = 1
) -> bytes:
    segment = struct.pack("!HHIIBBHHH", *ports, 1, acknowledged, 5 << 4, flags, 1024, 0, 0) + payload
    head = socket.inet_aton(source) + socket.inet_aton(destination) + struct.pack("!BBH", 0, TCP, len(segment))
    return ipv4(source, destination, TCP, segment[:16] + struct.pack("!H", checksum(head + segment)) + segment[18:])


def ipv4(source: str, destination: str, protocol: int, payload: bytes, *, offset: int = 0) -> bytes:
    ends = socket.inet_aton(source) + socket.inet_aton(destination)
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, offset // 8, 64, protocol, 0) + ends
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + payload


def ends6(source: str, destination: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, destination)


def ipv6(source: str, destination: str, protocol: int, payload: bytes, *, hop_limit: int = 64) -> bytes:
    return struct.pack("!IHBB", 6 << 28, len(payload), protocol, hop_limit) + ends6(source, destination) + payload


def summed6(source: str, destination: str, protocol: int, payload: bytes, at: int) -> bytes:
    payload = payload[:at] + bytes(2) + payload[at + 2 :]
    total = checksum(ends6(source, destination) + struct.pack("!II", len(payload), protocol) + payload)
    return payload[:at] + struct.pack("!H", total) + payload[at + 2 :]


def udp6(source: str, destination: str, payload: bytes, port: int, source_port: int = 4000) -> bytes:
    datagram = struct.pack("!HHHH", source_port, port, 8 + len(payload), 0) + payload
    return ipv6(source, destination, UDP, summed6(source, destination, UDP, datagram, 6))


def icmpv6(source: str, destination: str, kind: int, body: bytes, *, hop_limit: int = 255, code: int = 0) -> bytes:
    message = summed6(source, destination, ICMPV6, bytes((kind, code, 0, 0)) + body, 2)
    return ipv6(source, destination, ICMPV6, message, hop_limit=hop_limit)


def tcp6(source: str, destination: str, flags: int, *, ports: tuple[int, int], acknowledged: int = 1) -> bytes:
    segment = struct.pack("!HHIIBBHHH", *ports, 1, acknowledged, 5 << 4, flags, 1024, 0, 0)
    return ipv6(source, destination, TCP, summed6(source, destination, TCP, segment, 16))


def neighbour(kind: int, source: str, destination: str, target: str, option: int, of: str) -> bytes:
    flags = b"\xe0\0\0\0" if kind == 136 else bytes(4)
    return icmpv6(source, destination, kind, flags + socket.inet_pton(socket.AF_INET6, target) + bytes((option, 1)) + mac(of))


def bpdu(source: str) -> bytes:
    payload = bytes.fromhex("424203") + bytes(35)
    return mac("01:80:c2:00:00:00") + mac(source) + struct.pack("!H", len(payload)) + payload
