"""Addresses from IPAM on the pod's link of a further network: the guest gets them by DHCP. Pure.

virt-handler removes the address from the link, and the routes go with it. The link's alias stores them, for later set-ups. If IPAM gave no
IPv4 address, the pod answers no DHCP, and the guest uses the network's own DHCP server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from apiserver.apis.virt.places import network
from handler.network import aliases
from handler.network.binding import Link
from launcher.protocol.messages import Lease, Route

_ALIAS: Final = "kubevirt-ipam"


def lease(link: Link, routes: Sequence[Route], alias: str) -> Lease | None:
    """Return the guest's lease; None if the link never had an IPv4 address.

    Args:
        link: the pod's.
        routes: IPv4 routes through it, except those that follow from its addresses.
        alias: of the link.
    """
    if (kept := _kept(alias)) is not None:
        return kept
    addresses = link.of_family(4)
    return Lease(addresses[0], network.BRIDGED_SERVER, tuple(routes)) if addresses else None


def alias(name: str, given: Lease) -> str:
    """Return the alias that stores a lease.

    Raises:
        Unsupported: network ``name`` has too many routes for it.
    """
    problem = f"network {name} has more routes than a guest can receive by DHCP"
    return aliases.text(_ALIAS, aliases.of_lease(given), problem)


def _kept(text: str) -> Lease | None:
    """Return the lease in an alias; None if there is none of ours."""
    try:
        return aliases.lease(aliases.parts(_ALIAS, text))
    except ValueError:
        return None
