"""The XML of a domain, as in libvirt's "Domain XML format" (https://libvirt.org/formatdomain.html)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from apiserver.apis.virt.hardware import clock as clock_fields
from apiserver.apis.virt.hardware import features as feature_fields
from apiserver.apis.virt.places import layout
from launcher.domain import (
    chassis,
    clock,
    consoles,
    cpu,
    disks,
    features,
    filesystems,
    firmware,
    gpus,
    graphics,
    guest_agent,
    host_devices,
    inputs,
    interfaces,
    io_threads,
    memory,
    panic,
    pci,
    redirected_devices,
    rng,
    sound,
    tpm,
    usb,
    video,
    vsock,
    watchdog,
)
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification

_UUID_NAMESPACE: Final = uuid.UUID("6a4b9bd6-2d6f-5b0e-9d0d-1b2f6b1f7a51")
_FAMILIES: Final = (
    memory,
    cpu,
    io_threads,
    firmware,
    chassis,
    features,
    clock,
    disks,
    filesystems,
    interfaces,
    consoles,
    guest_agent,
    graphics,
    video,
    inputs,
    sound,
    watchdog,
    rng,
    tpm,
    panic,
    vsock,
    gpus,
    host_devices,
    redirected_devices,
    usb,
    pci,
)
"""In the document's order. ``pci`` is last because it counts all other devices."""


def domain_name(namespace: str, name: str) -> str:
    """Return the domain's name, ``NAMESPACE_NAME``, unique because neither part contains ``_``."""
    return f"{namespace}_{name}"


def domain_uuid(uid: str, specification: Mapping[str, Any]) -> str:
    """Return the guest's UUID: the specified ``firmware.uuid``, or one derived from ``uid``. Raises InvalidSpecification if invalid."""
    wanted = (specification.get("firmware") or {}).get("uuid")
    if not wanted:
        return str(uuid.uuid5(_UUID_NAMESPACE, uid))
    try:
        return str(uuid.UUID(wanted))
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidSpecification(f"firmware.uuid: {wanted!r} is not a UUID") from error


def left_out(definition: Definition) -> tuple[str, ...]:
    """Return the fields below ``spec.domain`` that an emulated machine ignores; empty with KVM.

    All only make guests faster or more accurate.
    """
    if definition.accelerator == "kvm":
        return ()
    return clock_fields.for_kvm_alone(definition.specification) + feature_fields.for_kvm_alone(definition.specification)


def to_xml(definition: Definition) -> str:
    """Return the domain's XML. Raises InvalidSpecification."""
    if definition.accelerator not in ("qemu", "kvm"):
        raise InvalidSpecification(f"accelerator: {definition.accelerator!r} must be qemu or kvm")
    domain = Element("domain", type=definition.accelerator)
    SubElement(domain, "name").text = domain_name(definition.namespace, definition.name)
    SubElement(domain, "uuid").text = domain_uuid(definition.uid, definition.specification)
    tree = Tree(domain, Element("features"), Element("devices"))
    SubElement(tree.devices, "emulator").text = layout.EMULATOR
    for family in _FAMILIES:
        family.append(tree, definition)
    domain.append(tree.features)
    for event, action in (("on_poweroff", "destroy"), ("on_reboot", "restart"), ("on_crash", "destroy")):
        SubElement(domain, event).text = action
    domain.append(tree.devices)
    indent(domain)
    return tostring(domain, encoding="unicode")
