"""The panic device: ``<panic>``."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import machine
from apiserver.apis.virt.hardware import panic as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import one_of

_LAST_SLOT: Final = "0x1f"


def append(tree: Tree, definition: Definition) -> None:
    """Append the devices through which the guest's kernel reports a panic.

    Many kernels include only one driver (``CONFIG_PVPANIC_MMIO``, ``CONFIG_PVPANIC_PCI``). On a ``pc`` the PCI device's address is on the
    first bus, which may be full.
    """
    model = one_of(hardware.MODELS, hardware.defaulted(definition.specification)["model"], "devices.panic.model")
    if model != "none":
        SubElement(tree.devices, "panic", model=model)
        if definition.pci_panic:
            device = SubElement(tree.devices, "panic", model="pvpanic")
            if "q35" not in machine.type_of(definition.specification):
                SubElement(device, "address", type="pci", bus="0x00", slot=_LAST_SLOT)
