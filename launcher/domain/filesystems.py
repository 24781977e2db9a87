"""Shared file systems: ``<filesystem>``, and the virtiofsd processes for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import filesystems as hardware
from apiserver.apis.virt.places import layout
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification, one_of, segment, socket


@dataclass(frozen=True, slots=True)
class Share:
    """A directory of the pod that the guest mounts by its name."""

    name: str
    directory: str
    socket: str
    """virtiofsd's socket."""
    read_only: bool


def append(tree: Tree, definition: Definition) -> None:
    """Append the devices.

    We start virtiofsd before the domain, because libvirt needs user namespaces to start it.
    """
    for share in shares(definition.specification):
        element = SubElement(tree.devices, "filesystem", type="mount")
        SubElement(element, "driver", type="virtiofs")
        SubElement(element, "source", socket=share.socket)
        SubElement(element, "target", dir=share.name)


def shares(specification: Mapping[str, Any]) -> tuple[Share, ...]:
    """Return the file systems of ``spec.domain``, in order. Raises InvalidSpecification for equal or invalid names."""
    found: list[Share] = []
    for position, each in enumerate(hardware.defaulted(specification)):
        path = f"devices.filesystems[{position}]"
        one_of(hardware.TYPES, each.get("type"), f"{path}.type")
        name = segment(each.get("name"), f"{path}.name")
        if any(name == other.name for other in found):
            raise InvalidSpecification(f"{path}.name: {name!r} is already the name of another file system")
        directory = f"{layout.FILESYSTEMS_DIRECTORY}/{name}"
        found.append(Share(name, directory, socket(layout.filesystem_socket(position)), bool(each["readOnly"])))
    return tuple(found)


def not_migratable(specification: Mapping[str, Any]) -> str:
    """Return why the file systems prevent live migration; else empty."""
    named = [each.name for each in shares(specification)]
    return f"virtiofsd in its pod holds the guest's open files of the file system {named[0]!r}" if named else ""
