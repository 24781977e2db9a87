"""Text form of what a pod's link had before it became the guest's: it is kept as the link's alias. Pure.

An alias outlives virt-handler, and goes with the pod. Its parts are separated by commas: a word that says whose it is, what the binding
keeps besides, the IPv4 address with the length of its prefix (empty: none), and each route as ``destination>gateway`` (empty: none).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from apiserver.apis.virt.places import network
from handler.network.binding import Unsupported
from launcher.protocol.messages import Lease, Route

_MAX_BYTES: Final = 255
"""IFALIASZ of the kernel, without the zero at the end."""


def text(word: str, parts: Sequence[str], problem: str) -> str:
    """Return an alias.

    Raises:
        Unsupported: it would be too long; the message is ``problem``.
    """
    made = ",".join((word, *parts))
    if len(made) > _MAX_BYTES:
        raise Unsupported(problem)
    return made


def parts(word: str, alias: str) -> list[str]:
    """Return what an alias of this word keeps; nothing where it is another's."""
    first, *rest = alias.split(",")
    return rest if first == word else []


def of_lease(lease: Lease | None) -> tuple[str, ...]:
    """Return the parts that keep a lease."""
    return ("",) if lease is None else (lease.address, *(f"{each.destination}>{each.gateway}" for each in lease.routes))


def lease(kept: Sequence[str]) -> Lease | None:
    """Return the lease that parts keep; None: an empty one. Raises ValueError: they keep none."""
    if not kept:
        raise ValueError("no address")
    address, *routes = kept
    return Lease(str(ipaddress.IPv4Interface(address)), network.BRIDGED_SERVER, tuple(map(_route, routes))) if address else None


def _route(told: str) -> Route:
    destination, _, gateway = told.partition(">")
    return Route(str(ipaddress.IPv4Network(destination)), str(ipaddress.IPv4Address(gateway)) if gateway else "")
