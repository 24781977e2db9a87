"""Disks that a storage plugin sets up on the node, and data from virt-handler to virt-launcher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given, network_disks
from apiserver.apis.virt.hardware.given import Domain
from apiserver.apis.virt.places import layout

PLUGIN: Final = "Plugin"
"""Their format is always raw, as for network disks."""
Protocol = Literal["nbd", "file"]
"""``nbd``: QEMU connects to an NBD server at a unix socket; ``file``: it opens a raw image."""
PROTOCOLS: Final = get_args(Protocol)
SOCKET: Final = "nbd.sock"
IMAGE: Final = "disk.img"
"""Files that a plugin may put into a disk's directory."""
SERVED: Final = "served"
"""Field in a disk's source with the plugin's answer, from virt-handler to virt-launcher, never in the API."""
MAX_SIZE: Final = 1 << 50
"""Bytes, far below an overflow."""


@dataclass(frozen=True, slots=True)
class Served:
    """A disk that a plugin has set up in a pod."""

    protocol: Protocol
    size: int
    """In bytes."""
    export: str = ""
    """Name, for ``nbd``."""
    live_migration: bool = False
    """The plugin serves the same content on all nodes, and on two at once during a migration."""


def is_plugin(disk: Mapping[str, Any]) -> bool:
    """Return whether a plugin sets up a disk."""
    return disk.get("type") == PLUGIN


def plugin_of(disk: Mapping[str, Any]) -> str:
    """Return the name of a disk's plugin, or ""."""
    return str((disk.get("source") or {}).get("plugin") or "") if is_plugin(disk) else ""


def size_limit_bytes(disk: Mapping[str, Any]) -> int:
    """Return the maximum bytes of a plugin's image file in the pod; 0 without such a file."""
    limit = (disk.get("source") or {}).get("sizeLimit") if is_plugin(disk) else None
    return 0 if limit is None else quantity.parse(str(limit)).bytes


def directory(name: str) -> str:
    """Return the pod's directory for a plugin's disk of this name."""
    return f"{layout.PLUGIN_DISKS_DIRECTORY}/{name}"


def path(name: str, protocol: Protocol) -> str:
    """Return the path in the pod of a plugin's socket (``nbd``) or image."""
    return f"{directory(name)}/{SOCKET if protocol == 'nbd' else IMAGE}"


def with_served(domain: Domain, served: Mapping[str, Served]) -> Object:
    """Return a domain of ``devices.defaulted`` with the plugins' answers, by disk name, in their disks' sources."""
    if not served:
        return dict(domain)
    disks = [_with_served(each, served.get(str(each.get("name")))) for each in given.devices(domain, "disks", [])]
    return given.with_devices(domain, "disks", disks)


def _with_served(disk: Object, found: Served | None) -> Object:
    if found is None or not is_plugin(disk):
        return disk
    said = {"protocol": found.protocol, "size": found.size, "export": found.export, "liveMigration": found.live_migration}
    return {**disk, "source": {"plugin": plugin_of(disk), SERVED: said}}


def served(disk: Mapping[str, Any]) -> Served | None:
    """Return the plugin's answer that :func:`with_served` put into a disk; None if missing or invalid."""
    said = (disk.get("source") or {}).get(SERVED)
    if not is_plugin(disk) or not isinstance(said, Mapping):
        return None
    protocol, size, export, live_migration = (said.get(each) for each in ("protocol", "size", "export", "liveMigration"))
    if protocol not in PROTOCOLS or type(size) is not int or not 0 < size <= MAX_SIZE or type(live_migration) is not bool:
        return None
    if not isinstance(export, str) or (export and not network_disks.is_export(export)):
        return None
    return Served("nbd" if protocol == "nbd" else "file", size, export, live_migration)
