"""The lease that the guest is given by DHCP: the pod's own resolver, the bridge's MTU, the machine's name."""

from __future__ import annotations

import dataclasses
import fcntl
import ipaddress
import re
import socket
import struct
from pathlib import Path
from typing import Final

from apiserver.apis.virt import network
from launcher.dhcp.answers import Lease
from launcher.protocol import messages

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


def is_served(machine: messages.Machine) -> bool:
    """Return whether the guest is on its pod's own network; on others nobody asks virt-launcher for addresses."""
    return any(each.tap == network.TAP for each in machine.interfaces)


def of(machine: messages.Machine, bridge: socket.socket, resolv_conf: Path = RESOLV_CONF) -> Lease:
    """Return the lease of the guest's interface on the pod's own network; ``bridge`` is any socket of the pod's network namespace.

    Raises:
        OSError: there is no bridge.
    """
    dns, search = resolver(_read(resolv_conf))
    interface = next(each for each in machine.interfaces if each.tap == network.TAP)
    behind = Lease(interface.mac, network.GUEST, network.GATEWAY, network.NETMASK, 0)
    return dataclasses.replace(
        behind if interface.lease is None else of_pod(interface.mac, interface.lease),
        mtu=min(_mtu(bridge), _MTU_BYTES),
        hostname=machine.name if _HOST.fullmatch(machine.name) else "",
        dns=dns,
        search=search,
    )


def of_pod(mac: str, given: messages.Lease) -> Lease:
    """Return the lease of a guest that has the pod's own address, without what the pod itself knows.

    A gateway outside of the address's network is reached by a route of its own, which a client must be told before the one through it.
    """
    own = ipaddress.IPv4Interface(given.address)
    router = next((each.gateway for each in given.routes if each.destination == "0.0.0.0/0"), "")
    is_plain = not given.routes or (len(given.routes) == 1 and router != "" and ipaddress.IPv4Address(router) in own.network)
    routes = [] if is_plain else sorted(((each.destination, each.gateway) for each in given.routes), key=lambda each: each[1] != "")
    return Lease(mac, str(own.ip), given.server, str(own.netmask), 0, router=router, routes=tuple(routes))


def resolver(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return servers and search domains of a resolv.conf(5); what the guest could not use (IPv6, loopback, no names) is left out."""
    servers: list[str] = []
    search: list[str] = []
    for line in text.splitlines():
        words = line.split()
        match words[:1]:
            case ["nameserver"] if len(words) > 1 and _is_reachable(words[1]):
                servers.append(words[1])
            case ["search" | "domain"]:
                search = [word.rstrip(".") for word in words[1:] if _DOMAIN.fullmatch(word.rstrip("."))]
            case _:
                pass
    return tuple(servers[:_MAX_DNS]), tuple(search[:_MAX_SEARCH])


def _is_reachable(address: str) -> bool:
    try:
        packed = socket.inet_pton(socket.AF_INET, address)
    except OSError:
        return False
    return packed[0] not in (0, 127)  # this host, loopback: RFC 6890


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_RESOLV_CONF_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _mtu(any_socket: socket.socket) -> int:
    name = network.BRIDGE.encode()
    found = fcntl.ioctl(any_socket, _SIOCGIFMTU, struct.pack("16si20x", name, 0))
    return int(struct.unpack("16si20x", found)[1])
