"""The guest's memory: ``memory``, and ``devices.autoattachMemBalloon``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import filesystems, host_devices, interfaces
from apiserver.apis.virt.hardware.given import Domain

GUEST: Final = "512Mi"
MIN: Final = quantity.parse("16Mi")
MAX: Final = quantity.parse("16Ti")
BLOCK_BYTES: Final = 2 << 20
"""A running guest gets and returns memory in such blocks."""


def guest_bytes(domain: Domain) -> int:
    """Return the guest's memory in bytes, rounded up."""
    return quantity.parse(str((domain.get("memory") or {}).get("guest", GUEST))).bytes


def max_guest_bytes(domain: Domain) -> int:
    """Return the maximum memory in bytes after hot-plug; by default the guest's memory."""
    most = (domain.get("memory") or {}).get("maxGuest")
    return guest_bytes(domain) if most is None else quantity.parse(str(most)).bytes


def grows(domain: Domain) -> bool:
    """Return whether virtio-mem can change the running guest's memory; needs ``maxGuest``.

    Excluded are huge pages, users' NUMA nodes, and memory shared with processes or devices.
    """
    return (
        (domain.get("memory") or {}).get("maxGuest") is not None
        and not page_size(domain)
        and not (domain.get("cpu") or {}).get("numa")
        and not is_shared(domain)
        and not host_devices.passed_through(domain)
    )


def is_shared(domain: Domain) -> bool:
    """Return whether other processes of the pod map the guest's memory, for file systems or network."""
    return bool(filesystems.defaulted(domain) or interfaces.of_passt(domain))


def pluggable_bytes(domain: Domain) -> int:
    """Return how many bytes a running guest can have beyond ``guest_bytes``, in whole blocks; 0 if its memory cannot grow."""
    return (max_guest_bytes(domain) - guest_bytes(domain)) // BLOCK_BYTES * BLOCK_BYTES if grows(domain) else 0


def page_size(domain: Domain) -> str:
    """Return the size of the huge pages behind the guest's memory, as a quantity; empty for ordinary pages."""
    return str(((domain.get("memory") or {}).get("hugepages") or {}).get("pageSize") or "")


def has_balloon(domain: Domain) -> bool:
    """Return whether the guest has a balloon, which returns unused memory."""
    return (domain.get("devices") or {}).get("autoattachMemBalloon") is not False


def compared(domain: Domain) -> Object:
    """Return ``memory`` with amounts in bytes, for comparisons."""
    return {"guest": guest_bytes(domain), "maxGuest": max_guest_bytes(domain), "hugepages": page_size(domain)}
