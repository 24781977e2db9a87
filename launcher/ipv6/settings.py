"""The guest's IPv6 settings, and which messages carry them. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The only client, its address, and its router. MAC addresses are bytes, other addresses text."""

    mac: bytes
    address: str
    router: str
    """Link-local, as in advertisements."""
    server_mac: bytes
    """Of virt-launcher's own frames; also in its DUID."""
    mtu: int
    server: str
    """Link-local address of virt-launcher's DHCPv6 server."""
    router_mac: bytes = b""
    """Empty if the router announces its MAC address itself."""
    answers: tuple[str, ...] = ()
    """The router's addresses that only virt-launcher answers for."""
    is_default: bool = True
    on_link: str = ""
    """The network that is on the link; empty: only the router is."""
    dns: tuple[str, ...] = ()
    search: tuple[str, ...] = ()


def packed(address: str) -> bytes:
    """Return an IPv6 address as bytes. Raises ValueError."""
    return ipaddress.IPv6Address(address).packed
