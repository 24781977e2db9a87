"""The source of random numbers: ``devices.rng``."""

from __future__ import annotations

from typing import Final, Literal, get_args

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain

Model = Literal["virtio", "none"]
MODELS: Final = get_args(Model)
MAX_BYTES: Final = 1 << 30
MAX_PERIOD_MILLISECONDS: Final = 24 * 60 * 60 * 1000


def defaulted(domain: Domain) -> Object:
    """Return ``devices.rng``, never None, with ``model`` and the ``period`` of a ``rate``."""
    rng: Object = {"model": "virtio", **(given.device(domain, "rng") or {})}
    if "rate" in rng:
        rng["rate"] = {"period": 1000, **given.said(rng["rate"])}
    return rng
