"""Features of the hypervisor and the machine: ``<features>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt.hardware import features as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification

_LIBVIRTS: Final = {"synictimer": "stimer", "vendorid": "vendor_id"}
"""Enlightenments with another name in libvirt."""


def append(tree: Tree, definition: Definition) -> None:
    """Append the features, those of KVM only with KVM. Call it after the firmware's ``append``."""
    said = hardware.given(definition.specification)
    if hardware.has_acpi(definition.specification):
        SubElement(tree.features, "acpi")
    apic = SubElement(tree.features, "apic")
    smm = hardware.smm(definition.specification)
    if smm is not None and tree.features.find("smm") is None:  # the firmware's setting takes precedence
        SubElement(tree.features, "smm", state=_state(is_on=smm))
    if definition.accelerator == "qemu":
        SubElement(SubElement(tree.features, "tcg"), "tb-cache", unit="MiB").text = str(hardware.TRANSLATION_CACHE_MEBIBYTES)
        return
    if (eoi := (said.get("apic") or {}).get("endOfInterrupt")) is not None:
        apic.set("eoi", _state(is_on=bool(eoi)))
    if enlightenments := hardware.hyperv(definition.specification):
        _append_hyperv(tree.features, enlightenments)
    if (said.get("kvm") or {}).get("hidden"):
        SubElement(SubElement(tree.features, "kvm"), "hidden", state="on")
    if "pvspinlock" in said:
        SubElement(tree.features, "pvspinlock", state=_state(is_on=said["pvspinlock"].get("enabled") is not False))


def _append_hyperv(features: Element, enlightenments: Mapping[str, Any]) -> None:
    hyperv = SubElement(features, "hyperv", mode="custom")
    for name, said in enlightenments.items():
        element = SubElement(hyperv, _LIBVIRTS.get(name, name), state="on")
        if name == "spinlocks":
            element.set("retries", str(int(said.get("spinlocks") or hardware.SPINLOCK_RETRIES)))
        if name == "vendorid":
            element.set("value", _vendor_id(said.get("vendorid")))


def _vendor_id(value: object) -> str:
    if not isinstance(value, str) or not hardware.VENDOR_ID.fullmatch(value):
        raise InvalidSpecification(f"features.hyperv.vendorid.vendorid: {value!r} is not allowed")
    return value


def _state(*, is_on: bool) -> str:
    return "on" if is_on else "off"
