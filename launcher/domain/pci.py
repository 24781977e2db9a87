"""PCIe ports: ``<controller type='pci'>``."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import machine
from launcher.domain.definition import Definition, Tree

SPARE_PORTS: Final = 4
"""For hot-plug. q35 accepts devices only behind root ports that exist when it starts."""


def append(tree: Tree, definition: Definition) -> None:
    """On q35, append spare root ports and one for each device that needs it. Call it last.

    libvirt adds the port for conventional PCI devices.
    """
    if "q35" not in machine.type_of(definition.specification):
        return
    devices = tree.devices
    needed = len(devices.findall("interface"))
    needed += sum(disk.find("target[@bus='virtio']") is not None for disk in devices.findall("disk"))
    needed += sum(controller.get("model") in ("virtio-scsi", "qemu-xhci") for controller in devices.findall("controller"))
    needed += sum(each.get("bus") == "virtio" for each in devices.findall("input"))
    needed += sum(devices.find(each) is not None for each in ("rng", "vsock"))
    needed += len(devices.findall("hostdev")) + len(devices.findall("filesystem"))
    needed += devices.find("memballoon[@model='virtio']") is not None
    needed += devices.find("memory") is not None
    needed += 1
    SubElement(devices, "controller", type="pci", index="0", model="pcie-root")
    for _ in range(needed + SPARE_PORTS):
        SubElement(devices, "controller", type="pci", model="pcie-root-port")
