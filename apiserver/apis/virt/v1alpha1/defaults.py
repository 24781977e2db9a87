"""Defaults: what a spec means when it says nothing, written into the object, so that no reader has to know.

In place, idempotent, and only where :mod:`decoding` found nothing wrong. What the manifest leaves to the system at run time stays unsaid:
the firmware's UUID, MAC addresses, the CPU model.
"""

from __future__ import annotations

from typing import Any, Final

from apiserver.apis.meta import quantity
from apiserver.apis.virt import power

MEMORY: Final = "512Mi"
MACHINE: Final = "q35"
START_TIMEOUT_SECONDS: Final = 180
GRACE_PERIOD_SECONDS: Final = 30
IMAGE_PATH: Final = "disk/disk.img"
INTERFACE: Final = "default"


def default_virtual_machine(obj: dict[str, Any]) -> None:
    """Fill in a VirtualMachine."""
    spec = _object(obj, "spec")
    spec.setdefault("runStrategy", power.RERUN_ON_FAILURE)
    rerun = _object(spec, "rerun")
    rerun.setdefault("limit", power.DEFAULT_RERUN_LIMIT)
    rerun.setdefault("startTimeoutSeconds", START_TIMEOUT_SECONDS)
    spec.setdefault("terminationGracePeriodSeconds", GRACE_PERIOD_SECONDS)
    domain = _object(spec, "domain")
    cpu = _object(domain, "cpu")
    for field in ("sockets", "cores", "threads"):
        cpu.setdefault(field, 1)
    memory = _object(domain, "memory")
    memory["guest"] = _canonical(memory.get("guest", MEMORY))
    _object(domain, "machine").setdefault("type", MACHINE)
    devices = _object(domain, "devices")
    for position, disk in enumerate(devices.setdefault("disks", [])):
        _default_disk(disk, position)
    for interface in devices.setdefault("interfaces", [{"name": INTERFACE}]):
        interface.setdefault("type", "masquerade")
        interface.setdefault("model", "virtio")
    devices.setdefault("graphics", [{"type": "vnc"}])
    devices.setdefault("consoles", [{"type": "pty"}])


def default_migration(obj: dict[str, Any]) -> None:
    """Fill in a Migration: there is nothing that it leaves unsaid."""
    del obj


def _default_disk(disk: dict[str, Any], position: int) -> None:
    disk.setdefault("name", f"disk{position}")
    is_cdrom = disk.setdefault("device", "disk") == "cdrom"
    _object(disk, "target").setdefault("bus", "sata" if is_cdrom else "virtio")
    disk.setdefault("readOnly", is_cdrom)
    if disk.get("type") == "Image":
        disk["source"].setdefault("path", IMAGE_PATH)


def _object(parent: dict[str, Any], field: str) -> dict[str, Any]:
    value: dict[str, Any] = parent.setdefault(field, {})
    return value


def _canonical(amount: str | float) -> str:
    return str(quantity.parse(str(amount)))
