"""Interfaces of type passt: ``<interface type="vhostuser">``, and passt's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt.hardware import interfaces as hardware
from apiserver.apis.virt.places import layout
from launcher.domain.values import InvalidSpecification, number, one_of, socket

PROTOCOLS: Final = ("TCP", "UDP")
RECONNECT_SECONDS: Final = 1
"""Between QEMU's attempts to connect to passt."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of passt, which relays the guest's connections."""

    interface: str
    ports: Mapping[str, tuple[int, ...]]
    """The guest's reachable ports, by protocol."""


def settings(specification: Mapping[str, Any]) -> Settings | None:
    """Return passt's settings; None if no interface has type passt. ``specification`` is the content of ``spec.domain``.

    Raises InvalidSpecification: such an interface is invalid or has a network, or several have the type.
    """
    found = None
    for position, each in enumerate(hardware.defaulted(specification)):
        path = f"devices.interfaces[{position}]"
        if each["type"] != hardware.PASST:
            continue
        if found is not None or each.get("network"):
            raise InvalidSpecification(
                f"{path}.type: only one interface can use the pod's own network, and passt supports no other network"
            )
        ports: dict[str, list[int]] = {name: [] for name in PROTOCOLS}
        for port in hardware.ports(each) or ():
            protocol = one_of(PROTOCOLS, port.get("protocol"), f"{path}.ports.protocol")
            ports[protocol].append(int(number(port.get("port"), 1, 65535, f"{path}.ports.port")))
        found = Settings(str(each.get("name")), {name: tuple(sorted(set(given))) for name, given in ports.items()})
    return found


def append(devices: Element, mac: str) -> None:
    """Append passt's interface. QEMU keeps reconnecting, because a new passt process may replace one that ended."""
    element = SubElement(devices, "interface", type="vhostuser")
    SubElement(element, "mac", address=mac)
    source = SubElement(element, "source", type="unix", path=socket(layout.PASST_SOCKET), mode="client")
    SubElement(source, "reconnect", enabled="yes", timeout=str(RECONNECT_SECONDS))
    SubElement(element, "model", type="virtio")
    SubElement(element, "rom", enabled="no")


def not_migratable(specification: Mapping[str, Any]) -> str:
    """Return why passt prevents live migration; else empty."""
    found = next(iter(hardware.of_passt(specification)), None)
    return f"interface {found.get('name')!r} uses passt, a process in its pod that holds all connections of the guest" if found else ""
