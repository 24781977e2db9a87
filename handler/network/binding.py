"""A binding: how one interface of a guest is joined to a link of its pod. Pure.

It is a function from the wanted and the observed state to a :class:`Plan`. The plan's script must be idempotent, and must not let any frame
of the guest pass before its filter is in force.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.apis.virt.places import network
from launcher.protocol.leases import Lease, Lease6, Route

DEFAULT_MTU: Final = 1500
NO_FILTER: Final = 65
"""Exit status of a script if nft refused the rules."""


class Unsupported(Exception):
    """The pod's network, or the machine's request for it, is not supported."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A set-up interface of the guest.

    virt-launcher serves ``lease`` by DHCP, ``lease6`` by DHCPv6 and router advertisements.
    """

    name: str
    mac: str
    tap: str
    model: str
    addresses: tuple[str, ...]
    """At which others reach the guest."""
    is_own: bool = True
    """Not on a further or a third-party plugin's network."""
    lease: Lease | None = None
    """None: on the pod's own tap, the fixed address of ``masquerade`` if ``ipv4``; else none."""
    lease6: Lease6 | None = None
    ipv4: bool = True
    """virt-launcher answers the guest's DHCP for IPv4."""
    live_migration: bool = True


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the guest."""

    protocol: str
    """TCP or UDP."""
    port: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """One interface of the machine, and its devices' names in the pod.

    An empty ``mac`` is that of the pod's link; an empty ``network`` the pod's own or the plugin's. ``ports``: of the guest, for
    others; None: all.
    """

    name: str
    type: str
    mac: str
    """The guest's, in lower case with colons."""
    model: str
    queues: int = 1
    uplink: str = network.UPLINK
    bridge: str = network.BRIDGE
    tap: str = network.TAP
    network: str = ""
    """Of that link, namespace/name."""
    ports: tuple[Port, ...] | None = None
    ipv6_first: bool = False
    plugin: str = ""
    options: dict[str, str] = field(default_factory=dict)
    device: str = ""
    """For macvtap: major and minor number of the character device that the pod may open, 246:3."""


@dataclass(frozen=True, slots=True)
class Link:
    """A network device of the pod's network namespace."""

    name: str
    mac: str
    mtu: int
    addresses: tuple[str, ...]
    """Global ones with prefix length, 10.244.1.7/24, except those from router advertisements."""

    def of_family(self, version: int) -> tuple[str, ...]:
        """Return the link's addresses of IPv4 (4) or IPv6 (6), with prefix lengths."""
        return tuple(each for each in self.addresses if (":" in each) == (version == 6))


@dataclass(frozen=True, slots=True)
class Observed:
    """The observed state of the pod's network namespace.

    ``routes``, ``alias`` and ``gateway6`` are of ``eth0``, and observed only for type ``bridge``: the guest takes the pod's place.
    """

    links: tuple[Link, ...]
    routes: tuple[Route, ...] = ()
    """IPv4 routes that do not follow from its addresses."""
    alias: str = ""
    further_routes: Mapping[str, tuple[Route, ...]] = field(default_factory=dict)
    """By link."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """By link."""
    gateway6: str | None = None
    """Gateway of the IPv6 default route; empty: on the link; None: no such route."""
    gateway6_mac: str = ""
    """Of a gateway that has no link-local address."""

    def link(self, name: str) -> Link | None:
        """Return the namespace's link of this name, or None."""
        return next((each for each in self.links if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Plan:
    """The script that sets up one interface, and that interface for virt-launcher."""

    script: str
    """For ``sh`` in the namespace; exits with ``NO_FILTER`` if nft refused the rules. Empty: nothing to do."""
    interface: Interface
    kernel_options: tuple[str, ...] = ()
    """Needed by the rules besides those of all filters."""


Binding = Callable[[Wanted, Observed], Plan]
"""Raises Unsupported."""


Told = Sequence[Mapping[str, Any]]
"""Output of ``ip -json``."""


def observe(addresses: Told, routes: Told = (), links: Told = (), routes6: Told = ()) -> Observed:
    """Return an Observed from decoded outputs of ``ip -json``.

    The commands: ``address show``, ``-4 route show``, ``link show`` and ``-6 route show``.
    """
    aliases = {str(each["ifname"]): str(each["ifalias"]) for each in links if each.get("ifalias")}
    further = {each: tuple(_routes(routes, each)) for each in {str(route["dev"]) for route in routes if "dev" in route} - {network.UPLINK}}
    defaults = (each for each in routes6 if each.get("dst") == "default" and each.get("dev") == network.UPLINK and "type" not in each)
    return Observed(
        tuple(_link(each) for each in addresses),
        tuple(_routes(routes, network.UPLINK)),
        aliases.get(network.UPLINK, ""),
        further,
        aliases,
        next((str(each.get("gateway") or "") for each in defaults), None),
    )


def _routes(told: Told, link: str) -> Iterator[Route]:
    for each in told:
        if each.get("dev") == link and each.get("protocol") != "kernel" and "type" not in each:
            destination = ipaddress.IPv4Network("0.0.0.0/0" if each["dst"] == "default" else each["dst"])
            yield Route(str(destination), str(each.get("gateway") or ""))


_PASSING: Final = frozenset({"dynamic", "temporary", "deprecated", "dadfailed"})
"""Flags in ``ip`` of addresses that no CNI plugin gave, or that are unusable."""


def pod_link(wanted: Wanted, observed: Observed) -> Link:
    """Return the link of the pod's own network. Raises Unsupported if there is none."""
    uplink = observed.link(wanted.uplink)
    if uplink is None:
        raise Unsupported(f"the pod has no interface {wanted.uplink}")
    return uplink


def in_order(wanted: Wanted, ipv4: Sequence[str], ipv6: Sequence[str]) -> tuple[str, ...]:
    """Return these addresses without prefix lengths, IPv4 first unless ``wanted.ipv6_first``."""
    found = (*ipv6, *ipv4) if wanted.ipv6_first else (*ipv4, *ipv6)
    return tuple(each.partition("/")[0] for each in found)


def _link(told: Mapping[str, Any]) -> Link:
    found = (each for each in told.get("addr_info", ()) if each.get("scope") == "global" and not _PASSING & each.keys())
    addresses = (f"{each['local']}/{each['prefixlen']}" for each in found)
    return Link(
        str(told["ifname"]),
        str(told.get("address") or ""),
        int(told.get("mtu") or DEFAULT_MTU),
        tuple(addresses),
    )
