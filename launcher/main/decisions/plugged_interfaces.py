"""The network card that a running guest gets or loses: its XML, and the machine with and without it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, tostring

from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware import interfaces as hardware
from launcher.domain import interfaces
from launcher.domain.definition import Definition, Tap, Tree
from launcher.protocol import messages


def machine_with(machine: messages.Machine, card: Mapping[str, Any], interface: messages.Interface) -> messages.Machine:
    """Return the machine with this network card as the last one, and without an earlier card of its name."""
    others = machine_without(machine, interface.name)
    domain = given.with_devices(machine.domain, "interfaces", [*hardware.defaulted(others.domain), dict(card)])
    return dataclasses.replace(machine, domain=domain, interfaces=(*others.interfaces, interface))


def machine_without(machine: messages.Machine, name: str) -> messages.Machine:
    """Return the machine without the network card of this name."""
    domain = given.with_devices(machine.domain, "interfaces", [each for each in hardware.defaulted(machine.domain) if each["name"] != name])
    left = tuple(each for each in machine.interfaces if each.name != name)
    return dataclasses.replace(machine, domain=domain, interfaces=left)


def interface_of(machine: messages.Machine, name: str) -> messages.Interface | None:
    """Return the machine's interface of this name, or None; None for a machine with its own XML, which keeps what its author wrote."""
    return None if machine.domain_xml else next((each for each in machine.interfaces if each.name == name), None)


def xml(machine: messages.Machine, name: str) -> str:
    """Return the XML of the machine's network card of this name, or raise InvalidSpecification."""
    own = given.with_devices(machine.domain, "interfaces", [each for each in hardware.defaulted(machine.domain) if each["name"] == name])
    taps = [Tap(each.mac, each.tap, each.model, each.name) for each in machine.interfaces if each.name == name]
    definition = Definition(machine.namespace, machine.name, machine.uid, own, machine.accelerator, taps)
    tree = Tree(Element("domain"), Element("features"), Element("devices"))
    interfaces.append(tree, definition)
    (card,) = tree.devices.findall("interface")
    return tostring(card, encoding="unicode")
