"""A guest's IP settings in messages. virt-handler's network plugins load only this part."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    """An IPv4 route."""

    destination: str
    """10.96.0.0/12"""
    gateway: str = ""
    """Empty: on the link itself."""


@dataclass(frozen=True, slots=True)
class Lease:
    """DHCP settings of a guest that has the pod's address."""

    address: str
    """With prefix length: 10.244.1.7/24."""
    server: str
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True)
class Lease6:
    """IPv6 settings that virt-launcher gives a guest by router advertisements and DHCPv6."""

    address: str
    """With the prefix length of the link's network: fd00:10:244::7/64."""
    router: str
    """Link-local."""
    router_mac: str = ""
    """Empty: the router announces it itself."""
    answers: tuple[str, ...] = ()
    """virt-launcher answers neighbour solicitations for these addresses."""
    is_default: bool = True
    """The router gives the guest its default route."""
