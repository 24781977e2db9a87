"""A binding: the way in which one interface of a guest is joined to a link of its pod. Pure.

A binding is a function that is given what is wanted and what was observed, and returns a :class:`Plan`: what ``sh`` is to do in the pod's
network namespace, and how the guest's interface then looks. All three are plain data that could be JSON. The script must be harmless when
it is run again, and must not let a frame of the guest through before its filter is in force.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.virt import network
from launcher.protocol.messages import Lease, Route

DEFAULT_MTU: Final = 1500
NO_FILTER: Final = 65
"""Exit status of a script when nft refused the rules."""


class Unsupported(Exception):
    """The pod's network, or what the virtual machine asks of it, cannot be served."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface of the guest, wired."""

    name: str
    mac: str
    tap: str
    model: str
    addresses: tuple[str, ...]
    """By which others reach the guest."""
    network: str = ""
    """As of :class:`Wanted`."""
    lease: Lease | None = None
    """What virt-launcher tells the guest by DHCP; None: that it is behind the pod's address, or nothing."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the guest."""

    protocol: str
    """TCP or UDP."""
    port: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """One interface of the machine, and the names that its parts have in the pod."""

    name: str
    type: str
    mac: str
    """The guest's, in lower case with colons; empty: as the pod's link."""
    model: str
    queues: int = 1
    uplink: str = network.UPLINK
    """The pod's link to which the guest is joined."""
    bridge: str = network.BRIDGE
    tap: str = network.TAP
    network: str = ""
    """The NetworkAttachmentDefinition by which the pod has that link, namespace/name; empty: the pod's own network."""
    ports: tuple[Port, ...] | None = None
    """By which others reach the guest; None: all."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link of the namespace."""

    name: str
    mac: str
    mtu: int
    addresses: tuple[str, ...]
    """Of global scope, with the length of their prefix: 10.244.1.7/24."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The namespace as it is."""

    links: tuple[Link, ...]
    routes: tuple[Route, ...] = ()
    """IPv4, through ``eth0``, without those that follow from its addresses; looked for where the guest takes the pod's place."""
    alias: str = ""
    """Of ``eth0``; looked for likewise."""

    def link(self, name: str) -> Link | None:
        """Return the link of this name."""
        return next((each for each in self.links if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done for one interface, and what comes of it."""

    script: str
    """For ``sh``, in the namespace; it exits with ``NO_FILTER`` when nft refused its rules. Empty: nothing is to be done."""
    interface: Interface


Binding = Callable[[Wanted, Observed], Plan]
"""Raises Unsupported."""


Told = Sequence[Mapping[str, Any]]
"""What ``ip -json`` told."""


def observe(addresses: Told, routes: Told = (), links: Told = ()) -> Observed:
    """Read the answers of ``ip -json address show``, ``ip -json -4 route show`` and ``ip -json link show``."""
    alias = next((each.get("ifalias") or "" for each in links if each["ifname"] == network.UPLINK), "")
    return Observed(tuple(_link(each) for each in addresses), tuple(_routes(routes)), alias)


def _routes(told: Told) -> Iterator[Route]:
    for each in told:
        if each.get("dev") == network.UPLINK and each.get("protocol") != "kernel" and "type" not in each:
            destination = ipaddress.IPv4Network("0.0.0.0/0" if each["dst"] == "default" else each["dst"])
            yield Route(str(destination), str(each.get("gateway") or ""))


def _link(told: Mapping[str, Any]) -> Link:
    addresses = (f"{each['local']}/{each['prefixlen']}" for each in told.get("addr_info", ()) if each.get("scope") == "global")
    return Link(
        str(told["ifname"]),
        str(told.get("address") or ""),
        int(told.get("mtu") or DEFAULT_MTU),
        tuple(addresses),
    )
