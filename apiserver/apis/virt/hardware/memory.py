"""The guest's memory: ``memory``, and ``devices.autoattachMemBalloon``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware.given import Domain

GUEST: Final = "512Mi"
MIN: Final = quantity.parse("16Mi")
MAX: Final = quantity.parse("16Ti")


def guest_bytes(domain: Domain) -> int:
    """Return the guest's memory in bytes, rounded up.

    Raises:
        ValueError: it is not a quantity. Applies to all functions here.
    """
    return quantity.parse(str((domain.get("memory") or {}).get("guest", GUEST))).bytes


def max_guest_bytes(domain: Domain) -> int:
    """Return the maximum memory after hot-plug; by default the guest's memory."""
    most = (domain.get("memory") or {}).get("maxGuest")
    return guest_bytes(domain) if most is None else quantity.parse(str(most)).bytes


def page_size(domain: Domain) -> str:
    """Return the size of the huge pages behind the guest's memory, as a quantity; empty for ordinary pages."""
    return str(((domain.get("memory") or {}).get("hugepages") or {}).get("pageSize") or "")


def has_balloon(domain: Domain) -> bool:
    """Return whether there is a balloon, with which the guest returns unused memory."""
    return (domain.get("devices") or {}).get("autoattachMemBalloon") is not False


def compared(domain: Domain) -> Object:
    """Return ``memory`` in a normalized form, for comparisons."""
    return {"guest": guest_bytes(domain), "maxGuest": max_guest_bytes(domain), "hugepages": page_size(domain)}
