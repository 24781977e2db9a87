"""The guest's IPv6 settings, and which messages carry them. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The only client, its address, and its router. MAC addresses are bytes, other addresses text."""

    mac: bytes
    """The guest's."""
    address: str
    router: str
    """The link-local address in advertisements."""
    server_mac: bytes
    """The MAC address of virt-launcher's own frames, also in its DUID."""
    mtu: int
    server: str
    """The link-local address of virt-launcher's DHCPv6 server."""
    router_mac: bytes = b""
    """Empty if the router announces its MAC address itself."""
    answers: tuple[str, ...] = ()
    """The router's addresses that only virt-launcher answers for."""
    is_default: bool = True
    """True if the router is a default router."""
    on_link: str = ""
    """The network that is on the link; empty: only the router is."""
    dns: tuple[str, ...] = ()
    search: tuple[str, ...] = ()


def packed(address: str) -> bytes:
    """Return an IPv6 address as bytes."""
    return ipaddress.IPv6Address(address).packed
