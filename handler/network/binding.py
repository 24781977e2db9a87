"""A binding: the way in which one interface of a guest is joined to a link of its pod. Pure.

A binding is a function that is given what is wanted and what was observed, and returns a :class:`Plan`: what ``sh`` is to do in the pod's
network namespace, and how the guest's interface then looks. All three are plain data that could be JSON. The script must be harmless when
it is run again, and must not let a frame of the guest through before its filter is in force.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.apis.virt.places import network
from launcher.protocol.messages import Lease, Lease6, Route

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
    is_own: bool = True
    """True if it is on the pod's own network; False: on a further one, or where a third party's plugin has put it."""
    lease: Lease | None = None
    """Answers to the guest by DHCP; None: the fixed address of ``masquerade`` where ``ipv4``, otherwise nothing."""
    lease6: Lease6 | None = None
    """Answers to the guest about IPv6; None: nothing."""
    ipv4: bool = True
    """True if virt-launcher answers the guest's DHCP for IPv4."""
    live_migration: bool = True
    """True if a guest with it may move to another node, as far as the plugin is concerned that made it."""


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
    """The NetworkAttachmentDefinition by which the pod has that link, namespace/name; empty: the pod's own network, or the plugin's."""
    ports: tuple[Port, ...] | None = None
    """By which others reach the guest; None: all."""
    ipv6_first: bool = False
    """True if the pod's first address is of IPv6 (:func:`in_order`)."""
    plugin: str = ""
    """The name of the plugin; empty unless ``type`` is plugin."""
    options: dict[str, str] = field(default_factory=dict)
    """Options for the plugin from the machine: ``options`` of the interface."""
    device: str = ""
    """Of type macvtap: major and minor number of the character device by which the pod may open one, 246:3."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link of the namespace."""

    name: str
    mac: str
    mtu: int
    addresses: tuple[str, ...]
    """Of global scope, with the length of their prefix: 10.244.1.7/24. None that the kernel made of a router's advertisement."""

    def of_family(self, version: int) -> tuple[str, ...]:
        """Return those of IPv4 (4) or IPv6 (6)."""
        return tuple(each for each in self.addresses if (":" in each) == (version == 6))


@dataclass(frozen=True, slots=True)
class Observed:
    """The namespace as it is."""

    links: tuple[Link, ...]
    routes: tuple[Route, ...] = ()
    """IPv4, through ``eth0``, without those that follow from its addresses; looked for where the guest takes the pod's place."""
    alias: str = ""
    """Of ``eth0``; looked for likewise."""
    further_routes: Mapping[str, tuple[Route, ...]] = field(default_factory=dict)
    """The same through other links, by their names."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Of all links that have one, by their names."""
    gateway6: str | None = None
    """Of the IPv6 default route through ``eth0``; empty: it is on the link itself; None: there is no such route. Looked for likewise."""
    gateway6_mac: str = ""
    """Of a gateway whose address is no link-local one."""

    def link(self, name: str) -> Link | None:
        """Return the link of this name."""
        return next((each for each in self.links if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps for one interface, and their result."""

    script: str
    """For ``sh``, in the namespace; it exits with ``NO_FILTER`` when nft refused its rules. Empty: nothing is to be done."""
    interface: Interface
    kernel_options: tuple[str, ...] = ()
    """Options of the node's kernel that the rules need beside those of all filters."""


Binding = Callable[[Wanted, Observed], Plan]
"""Raises Unsupported."""


Told = Sequence[Mapping[str, Any]]
"""Output of ``ip -json``."""


def observe(addresses: Told, routes: Told = (), links: Told = (), routes6: Told = ()) -> Observed:
    """Read the answers of ``ip -json address show``, ``ip -json -4 route show``, ``ip -json link show`` and ``ip -json -6 route show``."""
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
"""Flags of ``ip`` on addresses that no CNI plugin gave, or that nobody may use."""


def pod_link(wanted: Wanted, observed: Observed) -> Link:
    """Return the link of the pod's own network.

    Raises:
        Unsupported: there is none.
    """
    uplink = observed.link(wanted.uplink)
    if uplink is None:
        raise Unsupported(f"the pod has no interface {wanted.uplink}")
    return uplink


def in_order(wanted: Wanted, ipv4: Sequence[str], ipv6: Sequence[str]) -> tuple[str, ...]:
    """Return addresses in the order of the pod's own, without the lengths of their prefixes.

    Every binding to the pod's own network has to say its addresses so: the first becomes ``status.podIP``, which virt-controller wrote from
    the pod, and which says the order the next time.
    """
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
