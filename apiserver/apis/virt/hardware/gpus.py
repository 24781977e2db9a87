"""GPUs of the node: ``devices.gpus``."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain


def defaulted(domain: Domain) -> list[Object]:
    """Return ``devices.gpus``; empty by default."""
    return given.devices(domain, "gpus", [])
