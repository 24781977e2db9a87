"""The disk that a running guest gets or loses: its XML, and the machine with and without it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, tostring

from apiserver.apis.virt.hardware import disks as hardware
from apiserver.apis.virt.hardware import given
from launcher.domain import disks
from launcher.domain.definition import Definition, Tree
from launcher.domain.disk_origins import Found
from launcher.protocol import messages


@dataclasses.dataclass(frozen=True, slots=True)
class Plugged:
    """libvirt's XML of a disk and its controllers."""

    target: str
    disk: str
    controllers: tuple[str, ...]


def machine_with(machine: messages.Machine, disk: Mapping[str, Any]) -> messages.Machine:
    """Return the machine with this disk, in place of one of its name. The other disks keep libvirt's names."""
    others = [each for each in hardware.defaulted(machine.domain) if each["name"] != disk["name"]]
    return _with_targets(machine, given.with_devices(machine.domain, "disks", [*others, dict(disk)]))


def machine_without(machine: messages.Machine, name: str) -> messages.Machine:
    """Return the machine without the disk of this name; a drive stays, empty. The other disks keep libvirt's names."""
    found = hardware.defaulted(machine.domain)
    left = [
        hardware.without_medium(each) if each["name"] == name else each for each in found if each["name"] != name or hardware.is_drive(each)
    ]
    return _with_targets(machine, given.with_devices(machine.domain, "disks", left))


def has_drive(machine: messages.Machine, name: str) -> bool:
    """Return whether a machine without XML of its own has a CD-ROM drive of this name."""
    return not machine.domain_xml and any(hardware.is_drive(each) for each in hardware.defaulted(machine.domain) if each["name"] == name)


def targets(machine: messages.Machine) -> dict[str, str]:
    """Return libvirt's names of the machine's disks, by the disks' names; none for a machine with its own XML."""
    return {} if machine.domain_xml else disks.assigned(machine.targets, machine.domain)


def alone(machine: messages.Machine, name: str) -> dict[str, Any]:
    """Return ``spec.domain`` with only this disk of the machine."""
    return given.with_devices(machine.domain, "disks", [each for each in hardware.defaulted(machine.domain) if each["name"] == name])


def plugged(machine: messages.Machine, name: str, found: Mapping[str, Found]) -> Plugged:
    """Return target name and XML of the machine's disk of this name, and its controllers' XML. Raises InvalidSpecification.

    ``machine.targets`` must have the disk.
    """
    definition = Definition(
        machine.namespace, machine.name, machine.uid, alone(machine, name), machine.accelerator, found=found, targets=machine.targets
    )
    tree = Tree(Element("domain"), Element("features"), Element("devices"))
    disks.append(tree, definition)
    (disk,) = tree.devices.findall("disk")
    controllers = tuple(tostring(each, encoding="unicode") for each in tree.devices.findall("controller"))
    return Plugged(machine.targets[name], tostring(disk, encoding="unicode"), controllers)


def _with_targets(machine: messages.Machine, domain: dict[str, Any]) -> messages.Machine:
    return dataclasses.replace(machine, domain=domain, targets=disks.assigned(disks.assigned(machine.targets, machine.domain), domain))
