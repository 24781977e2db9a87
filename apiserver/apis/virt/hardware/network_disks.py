"""Disks that QEMU itself reaches over the network: types, sources and forms of names.

Functions of one disk take an element of ``disks.defaulted``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.apis.meta import names

ISCSI: Final = "ISCSI"
NBD: Final = "NBD"
NFS: Final = "NFS"
RBD: Final = "RBD"
REQUESTS: Final = 32
"""Parallel requests to a disk with a driver that copies written data: each copy exists until the server answers."""

MAX_LUN: Final = 255
LOGIN_KEYS: Final[Mapping[str, str]] = {"node.session.auth.username": "username", "node.session.auth.password": "password"}
"""Files of a login in the pod, by keys of its Secret (``kubernetes.io/iscsi-chap``)."""
KEYRING_KEYS: Final[Mapping[str, str]] = {"key": "key"}
"""File with a Ceph user's key, by the key of its Secret (``kubernetes.io/rbd``)."""
AUTHORITY_KEYS: Final[Mapping[str, str]] = {"ca.crt": "ca-cert.pem"}
CLIENT_KEYS: Final[Mapping[str, str]] = {"tls.crt": "client-cert.pem", "tls.key": "client-key.pem"}
"""TLS files with QEMU's names, by keys of their Secret (``kubernetes.io/tls``). The client's two are optional."""

_ISCSI_PORT: Final = 3260
_MONITOR_PORT: Final = 6789
NFS_PORT: Final = 2049
"""QEMU first asks the server's portmapper (111) for this port and the mount protocol's."""
MAX_IDENTITY: Final = 2**31 - 1
"""Largest user or group id on an NFS server."""
_IQN: Final = re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.[a-z0-9.-]+(:[A-Za-z0-9.:_-]+)?|eui\.[0-9A-Fa-f]{16}|naa\.([0-9A-Fa-f]{16}){1,2}")
_MAX_IQN: Final = 223
"""RFC 7143, 4.2.7, without non-ASCII letters."""
_FILE: Final = re.compile(r"(/[^/]+){2,}")
MAX_FILE: Final = 1024
"""Bytes of a path: the mount protocol's limit (RFC 1813, 5.1.4)."""
MAX_NAME: Final = 255
"""Bytes of a path component (``NAME_MAX`` of Linux and of its exported file systems)."""
_RBD_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}")
_EXPORT: Final = re.compile(r"[A-Za-z0-9_.:/@+=~-]{1,255}")


def is_host(text: str) -> bool:
    """Return whether a text is a host's name or address: IPv4, or IPv6 without brackets and zone."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return not names.subdomain_errors(text)
    return "%" not in text


def is_export(text: str) -> bool:
    """Return whether a text is a supported name of an NBD export: 1 to 255 ASCII letters, digits and ``_.:/@+=~-``."""
    return bool(_EXPORT.fullmatch(text))


def is_rbd_name(text: str) -> bool:
    """Return whether a text can name a Ceph pool, image or user: 1 to 96 letters, digits, ``_.-``, not ``.`` or ``-`` first."""
    return bool(_RBD_NAME.fullmatch(text))


def is_file(text: str) -> bool:
    """Return whether a text is a file's path on an NFS server: absolute, in a directory, without ``.``, ``..`` and empty parts."""
    is_whole = bool(_FILE.fullmatch(text)) and not {".", ".."} & set(text.split("/"))
    is_short = len(text.encode()) <= MAX_FILE and all(len(each.encode()) <= MAX_NAME for each in text.split("/"))
    return is_whole and text.isprintable() and is_short


def is_iqn(text: str) -> bool:
    """Return whether a text names an iSCSI target or initiator: ``iqn.``, ``eui.`` or ``naa.``."""
    return len(text) <= _MAX_IQN and bool(_IQN.fullmatch(text))


def portal(text: str) -> tuple[str, int] | None:
    """Return host and port of an iSCSI portal: ``host``, ``host:port``, ``[IPv6]`` or ``[IPv6]:port``; None if invalid."""
    return _place(text, _ISCSI_PORT)


def monitor(text: str) -> tuple[str, int] | None:
    """Return host and port of a Ceph monitor, in the forms of :func:`portal`; None if invalid."""
    return _place(text, _MONITOR_PORT)


def _place(text: str, unsaid_port: int) -> tuple[str, int] | None:
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::([0-9]{1,5}))?", text)
    if match is None:
        return None
    host, port = match[1] or match[2], int(match[3] or unsaid_port)
    is_whole = is_host(host) and (":" in host) == (match[1] is not None)
    return (host, port) if is_whole and 1 <= port <= 65535 else None


@dataclass(frozen=True, slots=True)
class Kind:
    """Properties of one type of network disks."""

    endpoints: Callable[[Mapping[str, Any]], tuple[tuple[str, int], ...]]
    """Returns alternative hosts and ports of a valid source's servers."""
    identity: Callable[[Mapping[str, Any]], str]
    """Returns a text that is equal for two sources, even invalid ones, only if they are the same disk; empty without a server."""
    unsaid: Mapping[str, Any] = field(default_factory=dict)
    """Default fields of a source."""
    login_keys: Mapping[str, str] = field(default_factory=dict)
    """Files of a login in the pod, by the keys of the Secret in ``secretRef``."""
    has_tls: bool = False
    copies_writes: bool = False
    """QEMU's driver copies what the guest writes."""


def _of_nbd(source: Mapping[str, Any]) -> str:
    host = source.get("host")
    return f"export {source.get('export') or ''} of {_same_host(host)} port {source.get('port')}" if host else ""


def _of_iscsi(source: Mapping[str, Any]) -> str:
    return f"LUN {source.get('lun')} of {str(source['iqn']).lower()}" if source.get("iqn") else ""


def _of_nfs(source: Mapping[str, Any]) -> str:
    return f"file {source.get('path') or ''} of {_same_host(source['host'])}" if source.get("host") else ""


def _of_rbd(source: Mapping[str, Any]) -> str:
    listed = source.get("monitors")
    given = {str(each): monitor(str(each)) for each in (listed if isinstance(listed, list) else ())}
    found = sorted({text if place is None else f"{_same_host(place[0])} port {place[1]}" for text, place in given.items()})
    return f"image {source['image']} of pool {source.get('pool')} at {', '.join(found)}" if source.get("image") and found else ""


def _same_host(host: object) -> str:
    try:
        found = ipaddress.ip_address(str(host))
    except ValueError:
        return str(host).lower().removesuffix(".")
    return str((found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None) or found)


def _portals(source: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    found = portal(str(source["targetPortal"]))
    return () if found is None else (found,)


KINDS: Final[Mapping[str, Kind]] = {
    ISCSI: Kind(_portals, _of_iscsi, {"lun": 0}, login_keys=LOGIN_KEYS),
    NBD: Kind(lambda source: ((str(source["host"]), int(source["port"])),), _of_nbd, {"port": 10809}, has_tls=True),
    NFS: Kind(lambda source: ((str(source["host"]), NFS_PORT),), _of_nfs, copies_writes=True),
    RBD: Kind(
        lambda source: tuple(each for text in source["monitors"] if (each := monitor(str(text))) is not None),
        _of_rbd,
        {"pool": "rbd"},
        login_keys=KEYRING_KEYS,
        copies_writes=True,
    ),
}
"""Their format is always raw: with detection, a guest could make QEMU open other files and servers."""


def kind_of(disk: Mapping[str, Any]) -> Kind | None:
    """Return the ``Kind`` of a disk's type; None: QEMU does not reach it over the network."""
    return KINDS.get(str(disk.get("type")))


def is_network(disk: Mapping[str, Any]) -> bool:
    """Return whether QEMU reaches a disk over the network."""
    return kind_of(disk) is not None


def copies_writes(disk: Mapping[str, Any]) -> bool:
    """Return whether QEMU's driver copies writes to a disk of ``disks.defaulted`` until the server answers; never if read-only."""
    kind = kind_of(disk)
    return kind is not None and kind.copies_writes and not disk["readOnly"]


def endpoints(disk: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return (host, port) of each server of a valid network disk; empty for other disks. One server is enough to reach the disk."""
    kind = kind_of(disk)
    return () if kind is None else kind.endpoints(disk.get("source") or {})


def login_secret(disk: Mapping[str, Any]) -> str:
    """Return the name of the Secret for QEMU's login to a disk's server, or ""."""
    return _secret(disk, "secretRef") if login_keys(disk) else ""


def login_keys(disk: Mapping[str, Any]) -> Mapping[str, str]:
    """Return a mapping from keys of a disk's Secret to names of QEMU's login files; empty if its type has no login."""
    kind = kind_of(disk)
    return {} if kind is None else kind.login_keys


def tls_secret(disk: Mapping[str, Any]) -> str:
    """Return the name of the Secret with certificates for a disk's server, or ""."""
    kind = kind_of(disk)
    return _secret(disk, "tlsSecretRef") if kind is not None and kind.has_tls else ""


def _secret(disk: Mapping[str, Any], reference: str) -> str:
    return str(((disk.get("source") or {}).get(reference) or {}).get("name") or "")


def secret_of(disk: Mapping[str, Any]) -> str:
    """Return the name of the Secret that the pod mounts for a disk, or ""."""
    return login_secret(disk) or tls_secret(disk)


def identity(disk: Mapping[str, Any]) -> str:
    """Return a text that is equal for two network disks only if they are the same; empty for other disks or without a server."""
    kind = kind_of(disk)
    return "" if kind is None else kind.identity(disk.get("source") or {})
