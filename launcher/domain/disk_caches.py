"""Disks that two nodes have open during a migration, and their page caches."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from xml.etree import ElementTree as ET

from apiserver.apis.virt.hardware import disks


def shared(specification: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the writable disks that a migration's target opens directly, not as copies."""
    return tuple(
        str(each["name"])
        for each in disks.defaulted(specification)
        if not each["readOnly"] and not disks.is_overlaid(each) and not disks.is_empty_drive(each)
    )


def not_migratable(xml: str, names: Mapping[str, str], moved: Collection[str]) -> str:
    """Return why the disks' cache modes prevent live migration; else empty (docs/decisions/migration.md).

    ``xml`` is the domain's. ``names`` has the disks' names by libvirt's targets, ``moved`` the names of those that both nodes have open.
    """
    for disk in ET.fromstring(xml).iterfind("devices/disk"):  # noqa: S314  # ours
        driver, target = disk.find("driver"), disk.find("target")
        name = names.get(target.get("dev", ""), "") if target is not None else ""
        cache = driver.get("cache", "") if driver is not None else ""
        if name in moved and cache not in disks.UNCACHED:
            why = f"cache is {cache}" if cache else "its file system does not support O_DIRECT; use other storage"
            return f"data of the disk {name!r} may be only in the page cache of its node: {why}"
    return ""
