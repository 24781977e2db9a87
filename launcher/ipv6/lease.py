"""IPv6 settings for the guest, from virt-handler's data, the pod's resolver and the bridge's MTU."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Final

from apiserver.apis.virt.places import network
from launcher.dhcp import lease
from launcher.ipv6.settings import Settings
from launcher.protocol import leases, messages

_LEAST_MTU: Final = 1280
"""RFC 8200, section 5."""
_MOST_MTU: Final = 0xFFFF


def given(machine: messages.Machine) -> tuple[str, leases.Lease6] | None:
    """Return the guest's MAC address and lease on the pod's own network; None without IPv6."""
    return next(((each.mac, each.lease6) for each in machine.interfaces if each.tap == network.TAP and each.lease6 is not None), None)


def of(
    mac: str,
    told: leases.Lease6,
    any_socket: socket.socket,
    resolv_conf: Path = lease.RESOLV_CONF,
    mtu: lease.Mtu = lease.mtu_of_bridge,
) -> Settings:
    """Return the guest's IPv6 settings; ``any_socket`` is of the pod's network namespace. Raises OSError without a bridge."""
    own = ipaddress.IPv6Interface(told.address)
    dns, search = lease.resolver(lease.read(resolv_conf), socket.AF_INET6)
    return Settings(
        mac=_bytes(mac),
        address=str(own.ip),
        router=told.router,
        server_mac=_bytes(network.BRIDGE_MAC),
        mtu=min(max(mtu(any_socket, network.BRIDGE), _LEAST_MTU), _MOST_MTU),
        server=told.router if told.answers else network.BRIDGED_ROUTER6,
        router_mac=_bytes(told.router_mac),
        answers=told.answers,
        is_default=told.is_default,
        on_link=str(own.network) if own.network.prefixlen < own.max_prefixlen else "",
        dns=dns,
        search=search,
    )


def _bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))
