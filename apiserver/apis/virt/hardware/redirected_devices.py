"""USB devices of clients: ``devices.redirectedDevices``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain

MAX_RULES: Final = 16


def defaulted(domain: Domain) -> Object | None:
    """Return ``devices.redirectedDevices`` with ``slots``, and ``allow`` in each rule of a ``filter``, or None."""
    devices = given.device(domain, "redirectedDevices")
    if devices is None:
        return None
    if "filter" in devices:
        devices["filter"] = [{"allow": True, **given.said(each)} for each in devices["filter"]]
    return {"slots": 1, **devices}


def slots(domain: Domain) -> int:
    """Return the maximum number of clients' USB devices at a time; 0: none."""
    devices = defaulted(domain)
    return int(devices["slots"]) if devices is not None else 0
