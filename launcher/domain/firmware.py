"""Machine type, firmware, kernel and boot order: ``<os>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.meta.objects import dig
from apiserver.apis.virt.hardware import disks, machine
from apiserver.apis.virt.hardware import firmware as hardware
from apiserver.apis.virt.places import layout
from launcher.domain import firmware_files, smbios, values
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import confined, printable, word


def append(tree: Tree, definition: Definition) -> None:
    """Append the machine type, its firmware, and a kernel or the boot order."""
    specification = definition.specification
    element = SubElement(tree.domain, "os")
    SubElement(element, "type", arch="x86_64", machine=word(machine.type_of(specification), "machine.type")).text = "hvm"
    _append_bootloader(tree, element, definition)
    _append_system(tree, specification)
    kernel_boot = (specification.get("firmware") or {}).get("kernelBoot")
    if kernel_boot:
        _append_kernel(element, kernel_boot)
    elif not any(disk.get("bootOrder") for disk in disks.defaulted(specification)):
        SubElement(element, "boot", dev="hd")
        SubElement(element, "boot", dev="cdrom")


def _append_bootloader(tree: Tree, element: Element, definition: Definition) -> None:
    efi = firmware_files.efi(definition.specification, definition.uid)
    if efi is not None:
        loader = SubElement(element, "loader", readonly="yes", type="pflash")
        loader.text = str(efi.code)
        SubElement(element, "nvram").text = str(efi.variables)
        if efi.secure:
            loader.set("secure", "yes")
            SubElement(tree.features, "smm", state="on")
    if dig(definition.specification, "firmware", "bootloader", "bios", "useSerial"):
        SubElement(element, "bios", useserial="yes")


def _append_system(tree: Tree, specification: Mapping[str, Any]) -> None:
    firmware = specification.get("firmware") or {}
    system = values.smbios(firmware.get("system") or {}, hardware.SYSTEM_FIELDS, "firmware.system")
    smbios.append(tree, "system", system | values.smbios(firmware, ("serial",), "firmware"))


def _append_kernel(element: Element, kernel_boot: Mapping[str, Any]) -> None:
    container = kernel_boot.get("container") or {}
    for key, tag, required in (("kernelPath", "kernel", True), ("initrdPath", "initrd", False)):
        if container.get(key) or required:
            SubElement(element, tag).text = kernel_file(container, key)
    if arguments := kernel_boot.get("kernelArgs"):
        SubElement(element, "cmdline").text = printable(arguments, "firmware.kernelBoot.kernelArgs")


def kernel_file(container: Mapping[str, Any], key: str) -> str:
    """Return the path of the kernel (``kernelPath``) or the initial RAM disk (``initrdPath``), below the image's directory."""
    value = container.get(key)
    # A leading slash means the root of the image.
    relative = value.lstrip("/") if isinstance(value, str) else value
    return str(confined(layout.KERNEL_BOOT_DIRECTORY, relative, f"firmware.kernelBoot.container.{key}"))
