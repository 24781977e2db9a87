"""Addresses that a CNI plugin's IPAM gave to the pod's link of a further network: they are the guest's, which is told by DHCP. Pure.

What the link had is kept as its alias, so that it is known when everything is set up again: virt-handler takes the address from the link,
and the routes go with it. Where IPAM gave no IPv4 address, nobody answers in the pod, and the guest hears the network's own DHCP server.
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
    """Return what the guest is told; None where the link has, and had, no IPv4 address.

    Args:
        link: the pod's.
        routes: IPv4, through it, without those that follow from its addresses.
        alias: of the link.
    """
    if (kept := _kept(alias)) is not None:
        return kept
    addresses = link.of_family(4)
    return Lease(addresses[0], network.BRIDGED_SERVER, tuple(routes)) if addresses else None


def alias(name: str, given: Lease) -> str:
    """Return the text that keeps a lease.

    Raises:
        Unsupported: the network ``name`` has more routes than can be kept.
    """
    problem = f"network {name} gives its links too many routes for a guest to have them"
    return aliases.text(_ALIAS, aliases.of_lease(given), problem)


def _kept(text: str) -> Lease | None:
    """Return what an alias keeps; None: nothing, or it is not ours."""
    try:
        return aliases.lease(aliases.parts(_ALIAS, text))
    except ValueError:
        return None
