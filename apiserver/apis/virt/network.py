"""The masqueraded network of a launcher pod: names and addresses on which virt-handler, virt-launcher and virt-api agree. Pure.

::

    guest ── tap0 ── bridge k6t-eth0 (10.0.2.1, fixed MAC) ── masquerade out, dnat in ── eth0 (the pod's address)

virt-handler makes bridge, tap and filters from outside, virt-launcher answers the guest's DHCP on the bridge, and virt-api refuses MAC
addresses that a guest cannot have.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

UPLINK: Final = "eth0"
"""The name that every CNI plugin gives to the pod's interface."""
BRIDGE: Final = "k6t-eth0"
TAP: Final = "tap0"
BRIDGE_MAC: Final = "02:00:00:00:00:01"
"""The guest's gateway. Fixed, because after a live migration the guest goes on talking to the address it has learnt."""
TAP_MAC: Final = "02:00:00:00:00:02"
"""The node's end of the guest's cable."""
GATEWAY: Final = "10.0.2.1"
GUEST: Final = "10.0.2.2"
PREFIX: Final = 24
NETMASK: Final = "255.255.255.0"
BROADCAST: Final = "10.0.2.255"
BRIDGED_SERVER: Final = "169.254.75.1"
"""Of virt-launcher's DHCP server where the guest has the pod's own address (RFC 3927: no network's)."""
DHCP_SERVER_PORT: Final = 67
DHCP_CLIENT_PORT: Final = 68

RESERVED_MACS: Final = frozenset({BRIDGE_MAC, TAP_MAC})
EXAMPLE_MAC: Final = "52:54:00:c0:ff:ee"

_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_GROUP_BIT: Final = 0x01


def normal_mac(mac: str) -> str:
    """Return a MAC address in lower case with colons, whichever of the two usual notations it has; what is none is returned likewise."""
    return mac.lower().replace("-", ":")


def is_mac(text: str) -> bool:
    """Return whether a text is a MAC address in one of the two usual notations."""
    return _MAC.fullmatch(normal_mac(text)) is not None


def derived_mac(vm_uid: str, interface: str) -> str:
    """Return the MAC address that follows from a machine and the name of its interface, the same in every pod of it."""
    digest = hashlib.sha256(f"{vm_uid}\0{interface}".encode()).digest()
    while mac_problem(derived := _mac_of(digest)):
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
