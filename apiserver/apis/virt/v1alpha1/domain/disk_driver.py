"""Models and rules of a disk's ``driver`` and ``blockSize``."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from apiserver.apis.meta.schema import Int32, Model
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid
from apiserver.apis.virt.hardware import disk_driver
from apiserver.apis.virt.hardware import disks as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between

LEAST_BLOCK: Final = 512
LARGEST_BLOCK: Final = 2 << 20
"""QEMU's limits of block sizes."""


class DiskDriver(Model):
    """How QEMU reads and writes a disk: libvirt's ``<driver>``."""

    cache: disk_driver.Cache | None = Field(
        None,
        description="Caches between guest and storage, as in libvirt. none and directsync bypass the node's page cache; live "
        "migration requires one of them. unsafe ignores the guest's flushes: a power failure damages its file systems. Default none, if "
        "the file system has O_DIRECT.",
    )
    io: disk_driver.IO | None = Field(
        None,
        description="How QEMU waits for the storage: in threads, or by Linux's asynchronous I/O (native). native needs cache none or "
        "directsync. Default native for a block device, else threads.",
    )
    discard: disk_driver.Discard | None = Field(None, description="unmap passes the guest's discards to the storage. Default unmap.")
    detect_zeroes: disk_driver.DetectZeroes | None = Field(
        None,
        description="on turns writes of zeroes into a command to the storage; unmap also lets it free the blocks. Default off.",
    )
    error_policy: disk_driver.ErrorPolicy | None = Field(
        None,
        description="Effect of a storage error. stop: the guest is paused and loses no data. report: the guest gets the error. ignore: "
        "the error is ignored. enospace: stop if the storage is full, otherwise report. Default stop.",
    )


class BlockSize(Model):
    """A disk's block sizes for the guest, in bytes."""

    logical: Int32 | None = Field(None, description="Bytes of the smallest block to read or write. Default 512.")
    physical: Int32 | None = Field(
        None, description="Bytes of a block that is written at once, at least those of a logical block. Default logical."
    )


def validate(disk: Object, path: Path) -> list[FieldError]:
    """Return errors in ``driver`` and ``blockSize`` of a disk from ``hardware.disks.defaulted``."""
    if disk["device"] == "cdrom":
        return [forbidden(path.child(field), "may not be set for a cdrom") for field in ("driver", "blockSize") if disk.get(field)]
    return _validate_driver(disk, path.child("driver")) + _validate_blocks(disk, path.child("blockSize"))


def _validate_driver(disk: Object, path: Path) -> list[FieldError]:
    driver = disk.get("driver") or {}
    found = []
    if driver.get("io") == "native" and driver.get("cache", "none") not in hardware.UNCACHED:
        found.append(invalid(path.child("io"), "native", "needs cache none or directsync"))
    if driver.get("detectZeroes") == "unmap" and driver.get("discard") == "ignore":
        found.append(invalid(path.child("detectZeroes"), "unmap", "needs discard unmap"))
    if disk["readOnly"]:
        written = [field for field in ("discard", "detectZeroes") if driver.get(field) is not None]
        found += [forbidden(path.child(field), "may not be set for a read-only disk") for field in written]
    return found


def _validate_blocks(disk: Object, path: Path) -> list[FieldError]:
    sizes = disk.get("blockSize") or {}
    found = []
    for name, size in sizes.items():
        wrong = validate_between(size, LEAST_BLOCK, LARGEST_BLOCK, path.child(name))
        if not wrong and size & (size - 1):
            wrong = [invalid(path.child(name), size, "must be a power of two")]
        found += wrong
    logical, physical = hardware.block_size(disk)
    if not found and physical < logical:
        found.append(invalid(path.child("physical"), physical, "must not be less than logical"))
    if disk["target"]["bus"] == "sata" and logical != LEAST_BLOCK:  # QEMU's only size on this bus
        found.append(invalid(path.child("logical"), logical, f"must be {LEAST_BLOCK} on bus sata"))
    return found
