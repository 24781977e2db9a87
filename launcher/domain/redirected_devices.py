"""USB devices of clients: ``<redirdev>`` and ``<redirfilter>``.

For each slot, QEMU listens on a unix socket and speaks the usbredir protocol with virt-handler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt.hardware import redirected_devices as hardware
from apiserver.apis.virt.places import layout
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification, number, socket

_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]{2,4}")


def append(tree: Tree, definition: Definition) -> None:
    """Append the slots for clients' USB devices, and their filter, if specified."""
    devices = hardware.defaulted(definition.specification)
    if devices is None:
        return
    path = "devices.redirectedDevices"
    for slot in range(int(number(devices["slots"], 1, layout.REDIRECTED_DEVICES, f"{path}.slots"))):
        device = SubElement(tree.devices, "redirdev", bus="usb", type="unix")
        SubElement(device, "source", mode="bind", path=socket(layout.redirection_socket(slot)))
    if "filter" in devices:
        element = SubElement(tree.devices, "redirfilter")
        for position, rule in enumerate(devices["filter"]):
            _append_rule(element, rule, f"{path}.filter[{position}]")
        SubElement(element, "usbdev", allow="no")  # without any rule, libvirt would set no filter


def _append_rule(parent: Element, rule: Mapping[str, Any], path: str) -> None:
    given = {}
    for field in ("class", "vendor", "product"):
        if field not in rule:
            continue
        if not isinstance(rule[field], str) or not _NUMBER.fullmatch(rule[field]):
            raise InvalidSpecification(f"{path}.{field}: {rule[field]!r} is not a hexadecimal number")
        given[field] = rule[field]
    SubElement(parent, "usbdev", given, allow="yes" if rule["allow"] is True else "no")
