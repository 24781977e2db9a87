"""Addresses from IPAM on the pod's link of a further network: the guest gets them by DHCP. Pure.

virt-handler moves them and their routes from the link to the link's alias. Without an IPv4 address, the guest uses the network's own DHCP
server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from apiserver.apis.virt.places import network
from handler.network import aliases
from handler.network.binding import Link
from launcher.protocol.leases import Lease, Route

_ALIAS: Final = "kubevirt-ipam"


def lease(link: Link, routes: Sequence[Route], alias: str) -> Lease | None:
    """Return the guest's DHCP lease: that in the link's ``alias``, else one of the link's first IPv4 address; None without both.

    ``routes``, part of a new lease: those that the kernel did not add for the link's addresses.
    """
    if (kept := _kept(alias)) is not None:
        return kept
    addresses = link.of_family(4)
    return Lease(addresses[0], network.BRIDGED_SERVER, tuple(routes)) if addresses else None


def alias(name: str, given: Lease) -> str:
    """Return the link's alias that stores a lease. Raises Unsupported if network ``name`` has too many routes for it."""
    problem = f"network {name} has more routes than a guest can receive by DHCP"
    return aliases.text(_ALIAS, aliases.of_lease(given), problem)


def _kept(text: str) -> Lease | None:
    try:
        return aliases.lease(aliases.parts(_ALIAS, text))
    except ValueError:
        return None
