"""Settings of IPv6 that the guest is told, and by which messages. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The one client, its address, and its router. MAC addresses are bytes, the others text."""

    mac: bytes
    """The guest's."""
    address: str
    router: str
    """Link-local address that advertises itself."""
    server_mac: bytes
    """Of virt-launcher's own frames, and in its DUID."""
    mtu: int
    server: str
    """Link-local address of virt-launcher's DHCPv6."""
    router_mac: bytes = b""
    """Empty: the router makes it known itself."""
    answers: tuple[str, ...] = ()
    """Addresses that are the router's, for which nobody else answers."""
    is_default: bool = True
    """True if the router leads everywhere."""
    on_link: str = ""
    """The network whose addresses are on the link itself; empty: none but the router."""
    dns: tuple[str, ...] = ()
    search: tuple[str, ...] = ()


def packed(address: str) -> bytes:
    """Return the bytes of an IPv6 address."""
    return ipaddress.IPv6Address(address).packed
