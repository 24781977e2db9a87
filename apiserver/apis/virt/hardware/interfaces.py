"""Network interfaces: ``devices.interfaces``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import cpu, given
from apiserver.apis.virt.hardware.given import Domain

MAX_INTERFACES: Final = 8
"""Of a machine, and so of what its status tells of them."""
SRIOV: Final = "sriov"
"""Type of an interface that is a card of the node."""
MACVTAP: Final = "macvtap"
"""Type of an interface whose tap is a link of its own on that of a further network."""
PLUGIN: Final = "plugin"
"""Type of an interface that a plugin of the node sets up (docs/plugins.md)."""
PASST: Final = "passt"
"""Type of an interface whose connections a process of the pod makes for the guest."""
PASST_FILES: Final = 16384
"""Descriptors that it may have: two of each TCP connection, one of each port and of whatever else the guest talks to."""


def defaulted(domain: Domain) -> list[Object]:
    """Return ``devices.interfaces``, each with ``type``, and with ``model`` where it is emulated; one where nothing is said."""
    return [_defaulted(each) for each in given.devices(domain, "interfaces", [{"name": "default"}])]


def _defaulted(interface: Object) -> Object:
    found = {"type": "bridge" if "network" in interface else "masquerade", **interface}
    return found if found["type"] == SRIOV else {"model": "virtio", **found}


def emulated(domain: Domain) -> list[Object]:
    """Return the interfaces whose card is QEMU's, and not one of the node."""
    return [each for each in defaulted(domain) if each["type"] != SRIOV]


def of_passt(domain: Domain) -> list[Object]:
    """Return the interfaces whose connections passt makes: one at most, for the pod has one network of its own."""
    return [each for each in defaulted(domain) if each["type"] == PASST]


def on_taps(domain: Domain) -> list[Object]:
    """Return the interfaces whose frames QEMU exchanges with the node by a tap device, which may be a macvtap."""
    return [each for each in emulated(domain) if each["type"] != PASST]


def on_macvtaps(domain: Domain) -> list[Object]:
    """Return the interfaces among those whose tap is a macvtap, and has a character device of its own."""
    return [each for each in on_taps(domain) if each["type"] == MACVTAP]


def takes_place_of_pod(interface: Mapping[str, Any]) -> bool:
    """Return whether the guest has the pod's own addresses, which leaves the pod none."""
    return interface["type"] == "bridge" and not interface.get("network")


def is_on_pods_network(interface: Mapping[str, Any]) -> bool:
    """Return whether an interface is joined to the network that the pod has anyway, and not to a further one."""
    return not interface.get("network") and interface["type"] != PLUGIN


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
