"""Disks that QEMU itself reaches over the network, by drivers of its own: their types, sources and the forms of what names them. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta import names

NBD: Final = "NBD"
TYPES: Final = frozenset({NBD})
"""Types of such disks. Their content is raw, whatever its first bytes say: guessing would let a guest name files and servers to QEMU."""

_UNSAID: Final[Mapping[str, Mapping[str, Any]]] = {NBD: {"port": 10809}}
_EXPORT: Final = re.compile(r"[A-Za-z0-9_.:/@+=~-]{1,255}")


def unsaid(kind: object) -> Mapping[str, Any]:
    """Return what a source of a disk of this type means where it says nothing."""
    return _UNSAID.get(str(kind), {})


def is_network(disk: Mapping[str, Any]) -> bool:
    """Return whether QEMU reaches a disk over the network."""
    return disk.get("type") in TYPES


def is_host(text: str) -> bool:
    """Return whether a text is the name of a host or its address: IPv4, or IPv6 without brackets and zone."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return not names.subdomain_errors(text)
    return "%" not in text


def is_export(text: str) -> bool:
    """Return whether a text can be the name of an export of an NBD server: those of QEMU's and of nbd-server's manuals can."""
    return bool(_EXPORT.fullmatch(text))
