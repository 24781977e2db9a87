"""Trusted Platform Module: ``<tpm>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import tpm
from launcher.domain.definition import Definition, Tree


def append(tree: Tree, definition: Definition) -> None:
    """Append the TPM, if the machine has one. libvirt keeps persistent state when the domain ends."""
    defaulted = tpm.defaulted(definition.specification)
    if defaulted is None:
        return
    element = SubElement(tree.devices, "tpm", model="tpm-crb")
    backend = SubElement(element, "backend", type="emulator", version="2.0")
    if defaulted["persistent"]:
        backend.set("persistent_state", "yes")
