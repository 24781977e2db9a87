"""The source of random numbers: ``devices.rng``."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain


def meant(domain: Domain) -> Object:
    """Return ``devices.rng`` with ``model`` and, where there is a ``rate``, its ``period``."""
    rng: Object = {"model": "virtio", **(given.device(domain, "rng") or {})}
    if "rate" in rng:
        rng["rate"] = {"period": 1000, **given.said(rng["rate"])}
    return rng
