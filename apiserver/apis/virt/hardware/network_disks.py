"""Disks that QEMU itself reaches over the network, by drivers of its own: their types, sources and the forms of what names them. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta import names

ISCSI: Final = "ISCSI"
NBD: Final = "NBD"
TYPES: Final = frozenset({ISCSI, NBD})
"""Types of such disks. Their content is raw, whatever its first bytes say: guessing would let a guest name files and servers to QEMU."""

MAX_LUN: Final = 255
LOGIN_KEYS: Final[Mapping[str, str]] = {"node.session.auth.username": "username", "node.session.auth.password": "password"}
"""Files of a login in the pod by the keys of its Secret, which are those of Kubernetes' type ``kubernetes.io/iscsi-chap``."""

_UNSAID: Final[Mapping[str, Mapping[str, Any]]] = {ISCSI: {"lun": 0}, NBD: {"port": 10809}}
_ISCSI_PORT: Final = 3260
_IQN: Final = re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.[a-z0-9.-]+(:[A-Za-z0-9.:_-]+)?|eui\.[0-9A-Fa-f]{16}|naa\.([0-9A-Fa-f]{16}){1,2}")
_MAX_IQN: Final = 223
"""RFC 7143, 4.2.7; letters of other scripts, which it allows, are left out."""
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


def is_iqn(text: str) -> bool:
    """Return whether a text is the name of an iSCSI target or initiator: of the forms ``iqn.``, ``eui.`` or ``naa.``."""
    return len(text) <= _MAX_IQN and bool(_IQN.fullmatch(text))


def portal(text: str) -> tuple[str, int] | None:
    """Return host and port of an iSCSI portal: ``host``, ``host:port``, ``[IPv6]`` or ``[IPv6]:port``; None: it is none of these."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::([0-9]{1,5}))?", text)
    if match is None:
        return None
    host, port = match[1] or match[2], int(match[3] or _ISCSI_PORT)
    is_whole = is_host(host) and (":" in host) == (match[1] is not None)
    return (host, port) if is_whole and 1 <= port <= 65535 else None


def endpoints(disk: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return hosts and ports of the servers of a disk, any of which will do; ``disk`` is of what ``disks.defaulted`` returns, and valid."""
    source = disk.get("source") or {}
    match disk.get("type"):
        case "NBD":
            return ((str(source["host"]), int(source["port"])),)
        case "ISCSI":
            found = portal(str(source["targetPortal"]))
            return () if found is None else (found,)
        case _:
            return ()


def login_secret(disk: Mapping[str, Any]) -> str:
    """Return the Secret by which QEMU logs in to the server of a disk; empty where it needs none."""
    reference = (disk.get("source") or {}).get("secretRef") or {}
    return str(reference.get("name") or "") if disk.get("type") == ISCSI else ""


def identity(disk: Mapping[str, Any]) -> str:
    """Return what is the same of two disks that are surely one, as words; empty for a disk of another kind or without a server.

    One server has several names and addresses, so two disks that are one may have different ones.
    """
    source = disk.get("source") or {}
    match disk.get("type"):
        case "NBD" if source.get("host"):
            return f"export {source.get('export') or ''} of {str(source['host']).lower()} port {source.get('port')}"
        case "ISCSI" if source.get("iqn"):
            return f"LUN {source.get('lun')} of {str(source['iqn']).lower()}"
        case _:
            return ""
