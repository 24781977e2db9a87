"""Network interfaces: ``devices.interfaces``."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import cpu, given
from apiserver.apis.virt.hardware.given import Domain


def defaulted(domain: Domain) -> list[Object]:
    """Return ``devices.interfaces``, each with ``type`` and ``model``; one where nothing is said."""
    found = given.devices(domain, "interfaces", [{"name": "default"}])
    return [{"type": "bridge" if "network" in each else "masquerade", "model": "virtio", **each} for each in found]


def queues(domain: Domain, model: str) -> int:
    """Return how many pairs of queues a card of a model has."""
    return cpu.queues(domain) if has_several_queues(domain) and model == "virtio" else 1


def has_several_queues(domain: Domain) -> bool:
    """Return whether cards of model virtio have several queues where there are several processors."""
    return bool((domain.get("devices") or {}).get("networkInterfaceMultiqueue"))
