"""The panic device: ``<panic>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import panic as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import one_of


def append(tree: Tree, definition: Definition) -> None:
    """Append the devices through which the guest's kernel reports a panic, so that it does not hang forever.

    Linux has a driver for each (``CONFIG_PVPANIC_MMIO``, ``CONFIG_PVPANIC_PCI``), and many kernels include only one. libvirt gives the PCI
    device the last address, so other devices keep theirs.
    """
    model = one_of(hardware.MODELS, hardware.defaulted(definition.specification)["model"], "devices.panic.model")
    if model != "none":
        SubElement(tree.devices, "panic", model=model)
        if definition.pci_panic:
            SubElement(tree.devices, "panic", model="pvpanic")
