"""Networks of a launcher pod: names and addresses on which virt-handler, virt-launcher and virt-api agree. Pure.

The pod's own, with a masqueraded guest; :data:`BRIDGED_SERVER` and what is named likewise are of a guest in the pod's place
(``handler.network.bridged``). Those of further networks are in ``attachments``.

::

    guest ── tap0 ── bridge k6t-eth0 (10.0.2.1, fd10:0:2::1, fixed MAC) ── masquerade out, dnat in ── eth0 (the pod's addresses)

virt-handler makes bridge, taps and filters from outside, virt-launcher answers the guest's DHCP on the bridge and what it asks by IPv6 on a
tap of its own, and virt-api refuses MAC addresses that a guest cannot have.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Set
from typing import Final

UPLINK: Final = "eth0"
"""The name that every CNI plugin gives to the pod's interface."""
BRIDGE: Final = "k6t-eth0"
TAP: Final = "tap0"
BRIDGE_MAC: Final = "02:00:00:00:00:01"
"""The guest's gateway. Fixed, because after a live migration the guest goes on talking to the address it has learnt."""
MACVTAP_INDEX: Final = 1_000_000
"""Index of a link that is a guest's macvtap, less the minor number of its character device: libvirt looks for /dev/tap<index>."""
MACVTAP_HOLDER: Final = "kvhold"
"""Of links that take minor numbers for a moment."""
TAP_MAC: Final = "02:00:00:00:00:02"
"""The tap of the guest's card: the end that the pod has."""
GATEWAY: Final = "10.0.2.1"
GUEST: Final = "10.0.2.2"
PREFIX: Final = 24
NETMASK: Final = "255.255.255.0"
BROADCAST: Final = "10.0.2.255"
BRIDGED_SERVER: Final = "169.254.75.1"
"""Of virt-launcher's DHCP server where the guest has the pod's own address (RFC 3927: no network's)."""
GATEWAY6: Final = "fd10:0:2::1"
GUEST6: Final = "fd10:0:2::2"
"""Unique local addresses (RFC 4193), the guest's way out where the pod has IPv6."""
ROUTER6: Final = "fe80::1"
"""By which the guest knows its gateway; virt-launcher speaks for it."""
BRIDGED_ROUTER6: Final = "fe80::a9fe:4b01"
"""Link-local address from which virt-launcher speaks to a guest that has the pod's own address, as :data:`BRIDGED_SERVER` is for IPv4."""
CONTROL_TAP: Final = "tap-ipv6"
"""Of virt-launcher: what the guest asks of its router and of DHCPv6 comes out of it, and what goes in comes to the guest alone."""
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
    """Return a MAC address in lower case with colons, whichever of the two usual notations it has; what is none is returned likewise."""
    return mac.lower().replace("-", ":")


def link_local(mac: str) -> str:
    """Return the IPv6 address that follows from a MAC address on every link (RFC 4291, appendix A)."""
    octets = bytearray.fromhex(normal_mac(mac).replace(":", ""))
    octets[0] ^= 0x02
    return str(ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + octets[:3] + b"\xff\xfe" + octets[3:]))


def is_mac(text: str) -> bool:
    """Return whether a text is a MAC address in one of the two usual notations."""
    return _MAC.fullmatch(normal_mac(text)) is not None


def derived_mac(seed: str, name: str, reserved: Set[str] = RESERVED_MACS) -> str:
    """Return the MAC address that always follows from a seed and the name of what has it.

    A guest's follows from the machine's uid and the interface's name, the same in every pod; that of a link beside it, which is another
    one, from the guest's and what the link is. No address is one that is reserved.
    """
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    while (derived := _mac_of(digest)) in reserved:
        digest = hashlib.sha256(digest).digest()
    return derived


def _mac_of(digest: bytes) -> str:
    return "02:" + ":".join(f"{byte:02x}" for byte in digest[:5])  # 02: locally administered, unicast


def mac_problem(mac: str) -> str:
    """Return what keeps a guest from having this MAC address, or an empty string.

    A guest with the bridge's address would take what is meant for its gateway; a source address with the group bit is against
    IEEE 802, section 8.2.
    """
    if not is_mac(mac):
        return f"must be six pairs of hexadecimal digits such as {EXAMPLE_MAC}"
    mac = normal_mac(mac)
    if int(mac[:2], 16) & _GROUP_BIT or not mac.strip("0:"):
        return "must be a unicast address and not all zeros"
    if mac in RESERVED_MACS:
        return f"is the address of the guest's gateway or of the node's end of its cable; choose another one such as {EXAMPLE_MAC}"
    return ""
