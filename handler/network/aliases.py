"""Text form of a pod link's former settings, stored as the link's alias. Pure.

An alias survives virt-handler's restart. Its parts are separated by commas: a word for its binding, data of the binding, the IPv4 address
with prefix length, and each route as ``destination>gateway``; missing parts are empty.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from apiserver.apis.virt.places import network
from handler.network.binding import Unsupported
from launcher.protocol.leases import Lease, Route

_MAX_BYTES: Final = 255
"""The kernel's IFALIASZ, without the final zero."""


def text(word: str, parts: Sequence[str], problem: str) -> str:
    """Return a link's alias ``word,part,…``. Raises Unsupported with the message ``problem`` if it would be too long."""
    made = ",".join((word, *parts))
    if len(made) > _MAX_BYTES:
        raise Unsupported(problem)
    return made


def parts(word: str, alias: str) -> list[str]:
    """Return the parts of ``alias`` after this word; none if it begins with another."""
    first, *rest = alias.split(",")
    return rest if first == word else []


def of_lease(lease: Lease | None) -> tuple[str, ...]:
    """Return the parts of an alias that store this lease, or with None that there is none."""
    return ("",) if lease is None else (lease.address, *(f"{each.destination}>{each.gateway}" for each in lease.routes))


def lease(kept: Sequence[str]) -> Lease | None:
    """Return the lease that these parts of an alias store; None if the first is empty. Raises ValueError for no or invalid parts."""
    if not kept:
        raise ValueError("no address")
    address, *routes = kept
    return Lease(str(ipaddress.IPv4Interface(address)), network.BRIDGED_SERVER, tuple(map(_route, routes))) if address else None


def _route(told: str) -> Route:
    destination, _, gateway = told.partition(">")
    return Route(str(ipaddress.IPv4Network(destination)), str(ipaddress.IPv4Address(gateway)) if gateway else "")
