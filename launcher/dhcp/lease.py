"""DHCP leases: the pod's resolver, the bridge's MTU, the machine's name, addresses of IPAM."""

from __future__ import annotations

import dataclasses
import fcntl
import ipaddress
import re
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from apiserver.apis.virt.places import network
from apiserver.apis.virt.spec import attachments
from launcher.dhcp.answers import Lease
from launcher.protocol import leases, messages

RESOLV_CONF: Final = Path("/etc/resolv.conf")
_RESOLV_CONF_BYTES: Final = 16 << 10
_MAX_DNS: Final = 3
_MAX_SEARCH: Final = 32
"""As in a pod's dnsConfig."""
_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_DOMAIN: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SIOCGIFMTU: Final = 0x8921
_MTU_BYTES: Final = 0xFFFF


def with_dhcp(machine: messages.Machine) -> tuple[messages.Interface, ...]:
    """Return the interfaces that get DHCP: those with a lease, and that on the pod's own network with IPv4."""
    return tuple(each for each in machine.interfaces if (each.tap == network.TAP and each.ipv4) or each.lease is not None)


def not_migratable(machine: messages.Machine) -> str:
    """Return why IPAM would give the guest's next pod another address; else empty."""
    found = next((each for each in machine.interfaces if each.lease is not None and each.tap != network.TAP), None)
    return f"interface {found.name!r} has an address from its pod's IPAM, and the target pod gets another one" if found else ""


def bridge_of(interface: messages.Interface) -> str:
    """Return the bridge at which an interface's DHCP requests arrive."""
    return network.BRIDGE if interface.tap == network.TAP else attachments.bridge(interface.name)


def mtu_of_bridge(any_socket: socket.socket, bridge: str = network.BRIDGE) -> int:
    """Return the MTU of the guest's network. ``any_socket`` is of the pod's network namespace. Raises OSError without a bridge."""
    found = fcntl.ioctl(any_socket, _SIOCGIFMTU, struct.pack("16si20x", bridge.encode(), 0))
    return int(struct.unpack("16si20x", found)[1])


Mtu = Callable[[socket.socket, str], int]


def of(
    machine: messages.Machine,
    interface: messages.Interface,
    any_socket: socket.socket,
    resolv_conf: Path = RESOLV_CONF,
    mtu: Mtu = mtu_of_bridge,
) -> Lease:
    """Return the DHCP lease of one interface. Only the pod's own network gets host name and resolver. Raises OSError without a bridge."""
    behind = Lease(interface.mac, network.GUEST, network.GATEWAY, network.NETMASK, 0)
    found = behind if interface.lease is None else of_pod(interface.mac, interface.lease)
    found = dataclasses.replace(found, mtu=min(mtu(any_socket, bridge_of(interface)), _MTU_BYTES))
    if interface.tap != network.TAP:
        return found
    dns, search = resolver(read(resolv_conf))
    return dataclasses.replace(
        found,
        hostname=hostname(machine.name),
        dns=dns,
        search=search,
    )


def hostname(name: str) -> str:
    """Return the guest's host name, the first label of its machine's name, as Kubernetes does for pods; empty if that is invalid."""
    label = name.partition(".")[0]
    return label if _HOST.fullmatch(label) else ""


def of_pod(mac: str, given: leases.Lease) -> Lease:
    """Return the lease of a guest with the pod's address, without MTU, host name and resolver.

    Routes without a gateway come first: a gateway outside of the address's network needs one.
    """
    own = ipaddress.IPv4Interface(given.address)
    router = next((each.gateway for each in given.routes if each.destination == "0.0.0.0/0"), "")
    is_plain = not given.routes or (len(given.routes) == 1 and router != "" and ipaddress.IPv4Address(router) in own.network)
    routes = [] if is_plain else sorted(((each.destination, each.gateway) for each in given.routes), key=lambda each: each[1] != "")
    return Lease(mac, str(own.ip), given.server, str(own.netmask), 0, router=router, routes=tuple(routes))


def resolver(text: str, family: socket.AddressFamily = socket.AF_INET) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return up to 3 servers of ``family`` that the guest can reach, and 32 valid search domains, of a resolv.conf(5)."""
    servers: list[str] = []
    search: list[str] = []
    for line in text.splitlines():
        words = line.split()
        match words[:1]:
            case ["nameserver"] if len(words) > 1 and _is_reachable(words[1], family):
                servers.append(words[1])
            case ["search" | "domain"]:
                search = [word.rstrip(".") for word in words[1:] if _DOMAIN.fullmatch(word.rstrip("."))]
            case _:
                pass
    return tuple(servers[:_MAX_DNS]), tuple(search[:_MAX_SEARCH])


def _is_reachable(address: str, family: socket.AddressFamily) -> bool:
    try:
        packed = socket.inet_pton(family, address)
    except OSError:
        return False
    if family == socket.AF_INET:
        return packed[0] not in (0, 127)  # RFC 6890
    found = ipaddress.IPv6Address(packed)
    return not (found.is_loopback or found.is_unspecified or found.is_link_local or found.is_multicast or found.ipv4_mapped)


def read(path: Path) -> str:
    """Return a resolv.conf, cut at its size limit; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_RESOLV_CONF_BYTES).decode(errors="replace")
    except OSError:
        return ""
