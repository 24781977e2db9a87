"""Disks and CD-ROM drives: ``devices.disks``. Functions of one disk take an element of :func:`defaulted`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import cloud_init, cpu, disk_imports, disk_io_tune, given, host_disks, network_disks
from apiserver.apis.virt.hardware.given import Domain

MAX_DISKS: Final = 26
"""Also of imports in a status."""
MAX_SERIAL: Final = {"virtio": 20, "sata": 20, "ide": 20, "scsi": 36, "usb": 36}
"""Characters by bus. QEMU truncates longer ones, so two could become equal."""
CLAIM: Final = "PersistentVolumeClaim"
IMAGE: Final = "Image"
"""Types of disks; those made in the pod are :data:`cloud_init.MADE`."""
IMAGE_PATH: Final = "disk/disk.img"
BLOCK: Final = 512
"""Default block size in bytes."""
UNCACHED: Final = ("none", "directsync")
"""Values of ``driver.cache`` that bypass the node's page cache."""
OVERLAY_SIZE_LIMIT: Final = "4Gi"
"""Default of ``source.sizeLimit``, more than the cloud images of most distributions."""
MIB: Final = 1 << 20
LUN: Final = "lun"
EMPTY: Final = "EmptyDisk"
"""A blank disk made in the pod."""
_MEDIUM: Final = ("type", "source")
WWN: Final = re.compile(r"[0-9a-fA-F]{16}")


def defaulted(domain: Domain) -> list[Object]:
    """Return ``devices.disks``, each with ``name``, ``device``, ``target.bus``, ``readOnly``, and defaults of ``source``.

    These are an image's path, the ``sizeLimit`` of an image or claim with an overlay, and those of network disks.
    """
    return [_disk(each, position) for position, each in enumerate(given.devices(domain, "disks", []))]


def compared(domain: Domain) -> list[Object]:
    """Return :func:`defaulted` with amounts in bytes, for comparisons."""
    return [_in_bytes(each) for each in defaulted(domain)]


def is_drive(disk: Mapping[str, Any]) -> bool:
    """Return whether a disk of :func:`defaulted` is a CD-ROM drive, with or without a medium."""
    return bool(disk["device"] == "cdrom")


def medium_of(disk: Mapping[str, Any]) -> Object:
    """Return a drive's fields that describe its medium; empty without one."""
    return {key: disk[key] for key in _MEDIUM if disk.get(key) is not None}


def without_medium(disk: Mapping[str, Any]) -> Object:
    """Return a drive without the fields of its medium, as if it were empty."""
    return {key: value for key, value in disk.items() if key not in _MEDIUM}


def is_empty_drive(disk: Mapping[str, Any]) -> bool:
    """Return whether a disk of :func:`defaulted` is a CD-ROM drive without a medium."""
    return disk["device"] == "cdrom" and disk.get("type") is None and disk.get("source") is None


def is_lun(disk: Mapping[str, Any]) -> bool:
    """Return whether the guest's SCSI commands go to a device of the node, not to QEMU."""
    return disk.get("device") == LUN


def claim_of(disk: Mapping[str, Any]) -> str | None:
    """Return the name, in lower case, of the claim of a disk of :func:`defaulted`; None for other disks."""
    if is_empty_drive(disk):
        return None
    return str((disk.get("source") or {}).get("name") or "").lower() if disk.get("type", CLAIM) == CLAIM else None


def on_written_claims(domain: Domain) -> list[Object]:
    """Return the disks that may be created blank: writable ones on a claim, not ephemeral, without import, no CD-ROM drives."""
    found = (each for each in defaulted(domain) if not (each["readOnly"] or is_drive(each) or is_overlaid(each)))
    return [each for each in found if claim_of(each) and disk_imports.of(each) is None]


def queues(domain: Domain) -> int:
    """Return the number of queues that every disk gets; 0: QEMU's default, one per processor."""
    several = (domain.get("devices") or {}).get("blockMultiQueue")
    return 0 if several is None else cpu.queues(domain) if several else 1


def overlay_bytes(disk: Mapping[str, Any]) -> int:
    """Return the maximum size in bytes of the overlay of a disk of :func:`defaulted`; 0 without an overlay."""
    limit = (disk.get("source") or {}).get("size" if disk.get("type") == EMPTY else "sizeLimit")
    return quantity.parse(str(limit)).bytes if limit is not None and is_overlaid(disk) else 0


def created_bytes(disk: Mapping[str, Any]) -> int:
    """Return the bytes, rounded up to whole MiB, of ``source.create``: the blank disk in an empty claim or missing HostDisk file.

    0 without it, and for disks of other types, such as EmptyDisk.
    """
    size = ((disk.get("source") or {}).get("create") or {}).get("size") if disk.get("type") in (CLAIM, host_disks.HOST) else None
    return 0 if size is None else -(-quantity.parse(str(size)).bytes // MIB) * MIB


def is_overlaid(disk: Mapping[str, Any]) -> bool:
    """Return whether writes to a disk of :func:`defaulted` go to an overlay: a writable image, empty disk or ephemeral claim, no CD-ROM."""
    kind = disk.get("type", CLAIM)
    is_private = kind in (IMAGE, EMPTY) or (kind == CLAIM and bool((disk.get("source") or {}).get("ephemeral")))
    return is_private and disk["device"] != "cdrom" and not disk["readOnly"]


def block_size(disk: Mapping[str, Any]) -> tuple[int, int]:
    """Return (bytes of a logical block, default 512; bytes of a physical one, default as logical)."""
    said = disk.get("blockSize") or {}
    logical = said.get("logical") or BLOCK
    return logical, said.get("physical") or logical


def is_cached(disk: Mapping[str, Any]) -> bool:
    """Return whether a disk uses the node's page cache: ``driver.cache`` is set, and not one of ``UNCACHED``."""
    return (disk.get("driver") or {}).get("cache", "none") not in UNCACHED


def _in_bytes(disk: Object) -> Object:
    found = {key: value for key, value in disk.items() if key != "ioTune"}
    if disk.get("ioTune"):
        found["ioTune"] = disk_io_tune.limits(disk)
    if size := created_bytes(found):
        found = {**found, "source": {**found["source"], "create": {"size": size}}}
    if (given := disk_imports.of(found)) is not None and given.get("size") is not None:
        found = {**found, "source": {**found["source"], "import": {**given, "size": disk_imports.size(given)}}}
    if not is_overlaid(found):
        return found
    return {**found, "source": {**(found.get("source") or {}), "size" if found["type"] == EMPTY else "sizeLimit": overlay_bytes(found)}}


def _disk(said: Object, position: int) -> Object:
    is_made = said.get("type") in cloud_init.MADE
    # Cloud images lack SATA drivers; installers and Windows look for answer files on a CD-ROM.
    is_cdrom = said.get("device", "cdrom" if said.get("type") in cloud_init.MOUNTED else "disk") == "cdrom"
    disk: Object = {"name": f"disk{position}", "device": "cdrom" if is_cdrom else "disk", "readOnly": is_cdrom or is_made, **said}
    bus = "sata" if is_cdrom else "scsi" if is_lun(said) else "virtio"
    disk["target"] = {"bus": bus, **(said.get("target") or {})}
    over_network = network_disks.kind_of(said)
    unsaid = {"path": IMAGE_PATH} if said.get("type") == IMAGE else dict(over_network.unsaid) if over_network else {}
    if said.get("type") != EMPTY and is_overlaid(disk):
        unsaid["sizeLimit"] = OVERLAY_SIZE_LIMIT
    if unsaid or over_network:
        disk["source"] = {**unsaid, **(said.get("source") or {})}
    return disk
