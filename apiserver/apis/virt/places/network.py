"""Networks of a launcher pod: names and addresses shared by several processes.

Addresses without ``BRIDGED`` are for a masqueraded guest (:mod:`handler.network`). ``attachments`` has names for further networks.

virt-handler makes bridge, taps and filters. virt-launcher answers DHCP on the bridge, and IPv6 requests on its own tap.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Set
from typing import Final

UPLINK: Final = "eth0"
"""A pod's interface with all CNI plugins."""
BRIDGE: Final = "k6t-eth0"
TAP: Final = "tap0"
BRIDGE_MAC: Final = "02:00:00:00:00:01"
"""The guest's gateway, the same after a live migration."""
MACVTAP_INDEX: Final = 1_000_000
"""A macvtap's link index minus its character device's minor number: libvirt opens /dev/tap<index>."""
MACVTAP_HOLDER: Final = "kvhold"
"""Prefix of links that occupy minor numbers for a moment."""
TAP_MAC: Final = "02:00:00:00:00:02"
"""The pod's end of the guest's tap."""
GATEWAY: Final = "10.0.2.1"
GUEST: Final = "10.0.2.2"
PREFIX: Final = 24
NETMASK: Final = "255.255.255.0"
BROADCAST: Final = "10.0.2.255"
BRIDGED_SERVER: Final = "169.254.75.1"
"""virt-launcher's DHCP server for a guest with the pod's own address (RFC 3927: in no network)."""
GATEWAY6: Final = "fd10:0:2::1"
GUEST6: Final = "fd10:0:2::2"
"""Unique local (RFC 4193), if the pod has IPv6."""
ROUTER6: Final = "fe80::1"
"""The guest's IPv6 gateway, for which virt-launcher answers."""
BRIDGED_ROUTER6: Final = "fe80::a9fe:4b01"
"""virt-launcher's link-local address, like :data:`BRIDGED_SERVER` for IPv4."""
CONTROL_TAP: Final = "tap-ipv6"
"""virt-launcher's tap for the guest's router requests and DHCPv6."""
DHCP6_SERVERS: Final = "ff02::1:2"
DHCP6_SERVER_PORT: Final = 547
DHCP6_CLIENT_PORT: Final = 546
DHCP_SERVER_PORT: Final = 67
DHCP_CLIENT_PORT: Final = 68

RESERVED_MACS: Final = frozenset({BRIDGE_MAC, TAP_MAC})
EXAMPLE_MAC: Final = "52:54:00:c0:ff:ee"

_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_GROUP_BIT: Final = 0x01


def normal_mac(mac: str) -> str:
    """Return a MAC address, not checked, in lower case with colons, from either usual notation."""
    return mac.lower().replace("-", ":")


def link_local(mac: str) -> str:
    """Return the link-local IPv6 address of a MAC address (RFC 4291, appendix A)."""
    octets = bytearray.fromhex(normal_mac(mac).replace(":", ""))
    octets[0] ^= 0x02
    return str(ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + octets[:3] + b"\xff\xfe" + octets[3:]))


def is_mac(text: str) -> bool:
    """Return whether a text is a MAC address in either usual notation."""
    return _MAC.fullmatch(normal_mac(text)) is not None


def derived_mac(seed: str, name: str, reserved: Set[str] = RESERVED_MACS) -> str:
    """Return a MAC address derived from ``seed`` and ``name``, but none of ``reserved``.

    For a guest's card: the machine's uid and the interface's name.
    """
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    while (derived := _mac_of(digest)) in reserved:
        digest = hashlib.sha256(digest).digest()
    return derived


def _mac_of(digest: bytes) -> str:
    return "02:" + ":".join(f"{byte:02x}" for byte in digest[:5])  # locally administered, unicast


def mac_problem(mac: str) -> str:
    """Return why a guest cannot have this MAC address, or ""."""
    if not is_mac(mac):
        return f"must be six pairs of hexadecimal digits such as {EXAMPLE_MAC}"
    mac = normal_mac(mac)
    if int(mac[:2], 16) & _GROUP_BIT or not mac.strip("0:"):
        return "must be a unicast address and not all zeros"
    if mac in RESERVED_MACS:
        return f"is reserved for the guest's gateway or the node's side of the link; use another address such as {EXAMPLE_MAC}"
    return ""
