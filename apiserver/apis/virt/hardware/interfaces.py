"""Network interfaces: ``devices.interfaces``."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain


def meant(domain: Domain) -> list[Object]:
    """Return ``devices.interfaces``, each with ``type`` and ``model``; one where nothing is said."""
    return [{"type": "masquerade", "model": "virtio", **each} for each in given.devices(domain, "interfaces", [{"name": "default"}])]
