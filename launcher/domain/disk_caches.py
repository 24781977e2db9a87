"""Disks that two nodes have open while a guest moves, and whether the page cache of either may have other data of them than the disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from xml.etree import ElementTree as ET

from apiserver.apis.virt.hardware import disks


def shared(specification: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the disks of ``spec.domain`` that the guest writes to, and that the target has open, too: no copies."""
    return tuple(
        str(each["name"])
        for each in disks.defaulted(specification)
        if not each["readOnly"] and not disks.is_overlaid(each) and not disks.is_empty_drive(each)
    )


def not_migratable(xml: str, names: Mapping[str, str], moved: Collection[str]) -> str:
    """Return why the disks of a domain keep it from live migration, or an empty string.

    What the source's page cache has not written yet the target does not read, and what the target's has read once it does not read again.
    QEMU bypasses both where ``cache`` says so, which it does for every disk whose file system can be opened with ``O_DIRECT``.

    Args:
        xml: the domain, as ``launcher.domain.document`` makes it.
        names: of its disks, by what libvirt calls them.
        moved: names of disks that both nodes have open.
    """
    for disk in ET.fromstring(xml).iterfind("devices/disk"):  # noqa: S314  # ours
        driver, target = disk.find("driver"), disk.find("target")
        name = names.get(target.get("dev", ""), "") if target is not None else ""
        cache = driver.get("cache", "") if driver is not None else ""
        if name in moved and cache not in disks.UNCACHED:
            why = f"cache is {cache}" if cache else "its file system cannot be opened with O_DIRECT; use storage that can"
            return f"the page cache of its node has data of the disk {name!r}: {why}"
    return ""
