"""Devices of the node that device plugins gave to the pod for its guest.

A plugin puts their addresses into a variable of the container, separated by commas: ``PCI_RESOURCE_<NAME>`` or
``MDEV_PCI_RESOURCE_<NAME>``, with the resource's name in capitals and ``_`` for ``/`` and ``.`` (as in KubeVirt). The SR-IOV network device
plugin uses ``PCIDEVICE_<NAME>``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import host_devices
from apiserver.apis.virt.places import forms
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification

_PCI: Final = "PCI_RESOURCE"
_MEDIATED: Final = "MDEV_PCI_RESOURCE"
_NETWORK: Final = "PCIDEVICE"
_MAX_VALUE: Final = 4096
_ADDRESS: Final = re.compile(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([01][0-9a-fA-F])\.([0-7])")


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment's variables that device plugins set."""
    return {name: value for name, value in environment.items() if name.startswith((f"{_PCI}_", f"{_MEDIATED}_", f"{_NETWORK}_"))}


def not_migratable(specification: Mapping[str, Any]) -> str:
    """Return why passed-through devices prevent live migration; else empty."""
    first = next(iter(host_devices.passed_through(specification).values()), None)
    return f"the device {first.get('name')!r} belongs to its node" if first is not None else ""


def append(tree: Tree, definition: Definition, field: str) -> None:
    """Append a ``<hostdev>`` for each device of ``devices.<field>``. Raises InvalidSpecification if the pod lacks one."""
    for path, (kind, address) in _addresses(definition).items():
        if not path.startswith(f"devices.{field}["):
            continue
        element = SubElement(tree.devices, "hostdev", mode="subsystem", type=kind)
        if kind == "pci":
            element.set("managed", "no")  # the plugin bound it to vfio-pci, which the pod may not
        else:
            element.set("model", "vfio-pci")
        SubElement(SubElement(element, "source"), "address", address)


def _addresses(definition: Definition) -> dict[str, tuple[str, dict[str, str]]]:
    """Return libvirt's type and ``<address>`` attributes by the device's path. Devices of one resource take its addresses in order."""
    left: dict[str, list[tuple[str, str]]] = {}
    found = {}
    for path, device in host_devices.passed_through(definition.specification).items():
        resource = str(device.get("deviceName"))
        given = left.setdefault(resource, _given(resource, definition.environment))
        if not given:
            raise InvalidSpecification(
                f"{path}.deviceName: the pod's environment variable {_variable(_PCI, resource)} names no device of {resource}"
            )
        variable, address = given.pop(0)
        found[path] = _parsed(variable, address, f"{path}.deviceName")
    return found


def _given(resource: str, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    said = ((prefix, environment.get(_variable(prefix, resource), "")[:_MAX_VALUE]) for prefix in (_PCI, _MEDIATED, _NETWORK))
    return [(prefix, each.strip()) for prefix, value in said for each in value.split(",") if each.strip()]


def _variable(prefix: str, resource: str) -> str:
    return f"{prefix}_{resource.upper().replace('/', '_').replace('.', '_')}"


def _parsed(prefix: str, address: str, path: str) -> tuple[str, dict[str, str]]:
    if prefix == _MEDIATED and forms.UUID.fullmatch(address):
        return "mdev", {"uuid": address.lower()}
    if prefix in (_PCI, _NETWORK) and (match := _ADDRESS.fullmatch(address)):
        parts = zip(("domain", "bus", "slot", "function"), match.groups(), strict=True)
        return "pci", {name: f"0x{each.lower()}" for name, each in parts}
    raise InvalidSpecification(f"{path}: the device plugin named {address[:64]!r}, which is not a device address")
