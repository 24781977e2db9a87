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
    """Return the guest's memory; fractions of a byte are rounded up.

    Raises:
        ValueError: what is given is no quantity. So do all functions here.
    """
    return quantity.parse(str((domain.get("memory") or {}).get("guest", GUEST))).bytes


def max_guest_bytes(domain: Domain) -> int:
    """Return how much memory there is room for; as much as the guest has where nothing is said."""
    most = (domain.get("memory") or {}).get("maxGuest")
    return guest_bytes(domain) if most is None else quantity.parse(str(most)).bytes


def page_size(domain: Domain) -> str:
    """Return the size of the huge pages of which the guest's memory consists, as a quantity; empty for ordinary ones."""
    return str(((domain.get("memory") or {}).get("hugepages") or {}).get("pageSize") or "")


def has_balloon(domain: Domain) -> bool:
    """Return whether there is a balloon, through which the guest gives unused memory back."""
    return (domain.get("devices") or {}).get("autoattachMemBalloon") is not False


def compared(domain: Domain) -> Object:
    """Return ``memory`` in one way of writing: for comparisons."""
    return {"guest": guest_bytes(domain), "maxGuest": max_guest_bytes(domain), "hugepages": page_size(domain)}
