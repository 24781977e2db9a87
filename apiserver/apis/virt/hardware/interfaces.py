"""Network interfaces: ``devices.interfaces``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import cpu, given
from apiserver.apis.virt.hardware.given import Domain

MAX_INTERFACES: Final = 8
"""Also the limit in a status."""
SRIOV: Final = "sriov"
"""A network card of the node."""
MACVTAP: Final = "macvtap"
"""A macvtap on a further network's link."""
PLUGIN: Final = "plugin"
"""A plugin of the node sets it up (docs/plugins.md)."""
PASST: Final = "passt"
"""passt relays its connections in the pod."""
PASST_FILES: Final = 16384
"""Two per TCP connection, one per port and other flow."""


def defaulted(domain: Domain) -> list[Object]:
    """Return ``devices.interfaces``, each with ``type``, and with ``model`` if emulated; by default one named ``default``."""
    return [_defaulted(each) for each in given.devices(domain, "interfaces", [{"name": "default"}])]


def _defaulted(interface: Object) -> Object:
    found = {"type": "bridge" if "network" in interface else "masquerade", **interface}
    return found if found["type"] == SRIOV else {"model": "virtio", **found}


def compared(domain: Domain) -> list[Object]:
    """Return :func:`defaulted` without the default link state, for comparisons."""
    return [{key: value for key, value in each.items() if (key, value) != ("state", "up")} for each in defaulted(domain)]


def emulated(domain: Domain) -> list[Object]:
    """Return the interfaces of :func:`defaulted` with an emulated card, not a device of the node."""
    return [each for each in defaulted(domain) if each["type"] != SRIOV]


def of_passt(domain: Domain) -> list[Object]:
    """Return the interfaces of type passt, at most one."""
    return [each for each in defaulted(domain) if each["type"] == PASST]


def on_taps(domain: Domain) -> list[Object]:
    """Return the interfaces with a tap device, including macvtaps."""
    return [each for each in emulated(domain) if each["type"] != PASST]


def on_macvtaps(domain: Domain) -> list[Object]:
    """Return the interfaces with a macvtap."""
    return [each for each in on_taps(domain) if each["type"] == MACVTAP]


def takes_place_of_pod(interface: Mapping[str, Any]) -> bool:
    """Return whether the guest takes the pod's own addresses (bridge), by an interface of :func:`defaulted`."""
    return interface["type"] == "bridge" and not interface.get("network")


def is_on_pods_network(interface: Mapping[str, Any]) -> bool:
    """Return whether an interface of :func:`defaulted` is on the pod's own network, not on a further one or a plugin's."""
    return not interface.get("network") and interface["type"] != PLUGIN


def ports(interface: Mapping[str, Any]) -> list[Object] | None:
    """Return the guest's reachable ports, each with ``protocol``; None: all."""
    given_ports = interface.get("ports")
    return None if given_ports is None else [{"protocol": "TCP", **given.said(each)} for each in given_ports]


def state_of(interface: Mapping[str, Any]) -> str:
    """Return the interface's link state: ``up`` or ``down``."""
    return str(interface.get("state") or "up")


def queues(domain: Domain, model: str) -> int:
    """Return the number of queue pairs of a card of this model; 1 unless virtio with ``networkInterfaceMultiqueue``."""
    return cpu.queues(domain) if has_several_queues(domain) and model == "virtio" else 1


def has_several_queues(domain: Domain) -> bool:
    """Return whether each virtio card has as many queues as :func:`cpu.queues` returns, instead of one."""
    return bool((domain.get("devices") or {}).get("networkInterfaceMultiqueue"))
