"""The guest's memory: ``memory``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta import quantity
from apiserver.apis.virt.hardware.given import Domain

GUEST: Final = "512Mi"


def guest_bytes(domain: Domain) -> int:
    """Return the guest's memory; fractions of a byte are rounded up.

    Raises:
        ValueError: what is given is no quantity.
    """
    return quantity.parse(str((domain.get("memory") or {}).get("guest", GUEST))).bytes
