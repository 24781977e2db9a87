"""Network interfaces: ``<interface>``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt.hardware import interfaces as hardware
from apiserver.apis.virt.places import forms
from launcher.domain import passed_through, passt
from launcher.domain.definition import Definition, Tap, Tree
from launcher.domain.values import InvalidSpecification, word

_TAP: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}")  # IFNAMSIZ


def append(tree: Tree, definition: Definition) -> None:
    """Append an interface for each tap device, for passt, and for the node's network cards."""
    states = {str(each.get("name")): each.get("state") for each in hardware.defaulted(definition.specification)}
    settings = passt.settings(definition.specification)
    for tap in definition.taps:
        if settings is not None and tap.name == settings.interface:
            passt.append(tree.devices, _mac(tap))
            continue
        _append_interface(tree.devices, tap, hardware.queues(definition.specification, tap.model), states.get(tap.name))
    passed_through.append(tree, definition, "interfaces")


def not_migratable(specification: Mapping[str, Any]) -> str:
    """Return why the interfaces prevent live migration; else empty."""
    found = next((each for each in hardware.defaulted(specification) if hardware.takes_place_of_pod(each)), None)
    if found is None:
        return passt.not_migratable(specification)
    return f"interface {found.get('name')!r} has its pod's address, and the target pod gets another one"


def _mac(tap: Tap) -> str:
    if not forms.MAC.fullmatch(tap.mac):
        raise InvalidSpecification(f"devices.interfaces: {tap.mac!r} is not a MAC address")
    return tap.mac.lower()


def _append_interface(devices: Element, tap: Tap, queues: int, state: str | None) -> None:
    mac = _mac(tap)
    if not _TAP.fullmatch(tap.tap):
        raise InvalidSpecification(f"devices.interfaces: {tap.tap!r} is not a device name")
    element = SubElement(devices, "interface", type="ethernet")
    SubElement(element, "mac", address=mac)
    SubElement(element, "target", dev=tap.tap, managed="no")
    SubElement(element, "model", type=word(tap.model, "devices.interfaces.model"))
    if queues > 1:
        SubElement(element, "driver", name="qemu", queues=str(queues))
    if state:
        SubElement(element, "link", state=word(state, "devices.interfaces.state"))
    SubElement(element, "rom", enabled="no")  # the image contains no option ROMs for network boot
