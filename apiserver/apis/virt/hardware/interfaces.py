"""Network interfaces: ``devices.interfaces``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import cpu, given
from apiserver.apis.virt.hardware.given import Domain

SRIOV: Final = "sriov"
"""Type of an interface that is a card of the node."""


def defaulted(domain: Domain) -> list[Object]:
    """Return ``devices.interfaces``, each with ``type``, and with ``model`` where it is emulated; one where nothing is said."""
    return [_defaulted(each) for each in given.devices(domain, "interfaces", [{"name": "default"}])]


def _defaulted(interface: Object) -> Object:
    found = {"type": "bridge" if "network" in interface else "masquerade", **interface}
    return found if found["type"] == SRIOV else {"model": "virtio", **found}


def emulated(domain: Domain) -> list[Object]:
    """Return the interfaces whose card is QEMU's, and not one of the node."""
    return [each for each in defaulted(domain) if each["type"] != SRIOV]


def takes_place_of_pod(interface: Mapping[str, Any]) -> bool:
    """Return whether the guest has the pod's own addresses, which leaves the pod none."""
    return interface["type"] == "bridge" and not interface.get("network")


def ports(interface: Mapping[str, Any]) -> list[Object] | None:
    """Return the ports by which others reach the guest, each with ``protocol``; None: all."""
    given_ports = interface.get("ports")
    return None if given_ports is None else [{"protocol": "TCP", **given.said(each)} for each in given_ports]


def queues(domain: Domain, model: str) -> int:
    """Return how many pairs of queues a card of a model has."""
    return cpu.queues(domain) if has_several_queues(domain) and model == "virtio" else 1


def has_several_queues(domain: Domain) -> bool:
    """Return whether cards of model virtio have several queues where there are several processors."""
    return bool((domain.get("devices") or {}).get("networkInterfaceMultiqueue"))
