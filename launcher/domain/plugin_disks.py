"""Disks that a storage plugin sets up on the node: their ``<source>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt.hardware import disks as hardware
from apiserver.apis.virt.hardware import plugin_disks
from apiserver.apis.virt.hardware.plugin_disks import Served
from launcher.domain.network_disks import RECONNECT_SECONDS
from launcher.domain.values import InvalidSpecification


def served(disk: Mapping[str, Any], path: str) -> Served:
    """Return the plugin's answer for a disk, which virt-handler sent. Raises InvalidSpecification without one."""
    found = plugin_disks.served(disk)
    if found is None:
        raise InvalidSpecification(f"{path}.source: its plugin has not set it up")
    return found


def append_source(element: Element, disk: Mapping[str, Any]) -> None:
    """Append ``<source>`` of a disk at a unix socket. QEMU reconnects, even to a new socket file."""
    name = str(disk["name"])
    export = served(disk, f"devices.disks[{name}]").export
    found = SubElement(element, "source", protocol="nbd")
    if export:
        found.set("name", export)
    SubElement(found, "host", transport="unix", socket=plugin_disks.path(name, "nbd"))
    SubElement(found, "reconnect", delay=str(RECONNECT_SECONDS))


def not_migratable(specification: Mapping[str, Any]) -> str:
    """Return why disks of plugins prevent live migration; else empty."""
    for disk in hardware.defaulted(specification):
        found = plugin_disks.served(disk)
        if plugin_disks.is_plugin(disk) and not (found and found.live_migration):
            return f"the disk {disk['name']!r} is set up only on its node, by plugin {plugin_disks.plugin_of(disk)!r}"
    return ""
