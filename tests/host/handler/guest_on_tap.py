"""The guest's end of a tap device: asks for an address by DHCP (RFC 2131) and prints address, router and host name."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


def checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(mac: bytes, kind: int, extra: bytes = b"") -> bytes:
    options = b"\x63\x82\x53\x63" + bytes((53, 1, kind)) + extra + bytes((55, 4, 1, 3, 12, 6)) + b"\xff"
    bootp = struct.pack("!BBBBIHH16x", 1, 1, 6, 0, 0x1234, 0, 0x8000) + mac + bytes(10 + 64 + 128) + options
    bootp += bytes(max(0, 300 - len(bootp)))
    udp = struct.pack("!HHHH", 68, 67, 8 + len(bootp), 0) + bootp
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes(4), b"\xff" * 4)
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return b"\xff" * 6 + mac + b"\x08\x00" + header + udp


def ask(tap: int, question: bytes, kind: int) -> tuple[str, dict[int, bytes]]:
    """Send until a DHCP message of this kind answers; return the address it gives and its options."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        os.write(tap, question)
        while select.select([tap], [], [], 0.5)[0]:
            data = os.read(tap, 2048)
            if (found := parse(data, kind)) is not None:
                return found
    raise TimeoutError(kind)


def parse(data: bytes, kind: int) -> tuple[str, dict[int, bytes]] | None:
    if data[12:14] != b"\x08\x00" or data[23] != 17 or data[34:38] != b"\x00\x43\x00\x44":
        return None
    bootp, options = data[42:], dict[int, bytes]()
    position = 240
    while bootp[position] != 255:
        code, length = bootp[position], bootp[position + 1]
        options[code] = bootp[position + 2 : position + 2 + length]
        position += 2 + length
    return (".".join(map(str, bootp[16:20])), options) if options[53][0] == kind else None


def main() -> None:
    name, mac = sys.argv[1].encode(), bytes.fromhex(sys.argv[2].replace(":", ""))
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name, IFF_TAP | IFF_NO_PI))
    address, options = ask(tap, frame(mac, 1), 2)
    requested = bytes((50, 4)) + bytes(map(int, address.split("."))) + bytes((54, 4)) + options[54]
    address, options = ask(tap, frame(mac, 3, requested), 5)
    print(address, ".".join(map(str, options[3][:4])), options[12].decode())


main()
