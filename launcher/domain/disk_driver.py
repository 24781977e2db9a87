"""How QEMU reads and writes a disk: ``<driver>`` and ``<blockio>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt.hardware import disk_driver
from apiserver.apis.virt.hardware import disks as hardware
from launcher.domain.disk_origins import Found, Origin, format_of, is_device
from launcher.domain.values import InvalidSpecification, one_of, snake

_WORDS: Final = {
    "discard": get_args(disk_driver.Discard),
    "detectZeroes": get_args(disk_driver.DetectZeroes),
    "errorPolicy": get_args(disk_driver.ErrorPolicy),
}


def append(element: Element, disk: Mapping[str, Any], origin: Origin, found: Found) -> Element:
    """Append ``<driver>`` to a ``<disk>``, and return the ``<driver>``."""
    driver = SubElement(element, "driver", name="qemu", type=format_of(origin, found))
    if origin.empty:
        return driver
    said = {name: value for name, value in (disk.get("driver") or {}).items() if value is not None}
    path = f"devices.disks[{origin.name}].driver"
    if disk.get("shareable"):
        said.setdefault("cache", "none")  # with the page cache, guests on other nodes would read stale data
    # io=native blocks the main loop while a sparse file grows, so it is for devices only. For caches, see docs/decisions/migration.md.
    if cache := one_of(disk_driver.CACHES, said.get("cache", "none"), f"{path}.cache") if found.direct or "cache" in said else "":
        if cache in hardware.UNCACHED and not found.direct:
            raise InvalidSpecification(f"{path}.cache: the disk's file system does not support O_DIRECT")
        driver.set("cache", cache)
    native = is_device(origin, found) and cache in hardware.UNCACHED
    if (cache and not origin.network) or "io" in said:  # network disks open no file, and have their own I/O mode
        driver.set("io", one_of(disk_driver.IOS, said.get("io", "native" if native else "threads"), f"{path}.io"))
        if driver.get("io") == "native" and cache not in hardware.UNCACHED:
            raise InvalidSpecification(f"{path}.io: native requires a cache mode without the page cache")
    if not origin.read_only:
        said.setdefault("discard", "unmap")
    if disk["device"] == "disk":
        # On a full file system or unreachable storage, the guest pauses, and loses nothing.
        said.setdefault("errorPolicy", "stop")
    for name, allowed in _WORDS.items():
        if name in said:
            driver.set(snake(name), one_of(allowed, said[name], f"{path}.{name}"))
    return driver


def append_sizes(element: Element, disk: Mapping[str, Any]) -> None:
    """Append ``<blockio>`` to a ``<disk>`` if block sizes are given."""
    if disk.get("blockSize"):
        logical, physical = hardware.block_size(disk)
        SubElement(element, "blockio", logical_block_size=str(int(logical)), physical_block_size=str(int(physical)))
