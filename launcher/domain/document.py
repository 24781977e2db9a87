"""The XML of a domain. Elements and attributes as in libvirt's "Domain XML format" (https://libvirt.org/formatdomain.html)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from apiserver.apis.virt import hardware, layout
from launcher.domain.disks import Found, InvalidSpecification, append_disks, confined

EMULATOR: Final = "/usr/bin/qemu-system-x86_64"
AGENT_CHANNEL: Final = "org.qemu.guest_agent.0"
AGENT_SOCKET: Final = "agent.sock"
"""QEMU's end of the guest agent's channel, below ``layout.RUN_DIRECTORY``."""
TRANSLATION_CACHE_MEBIBYTES: Final = 32
"""QEMU's default is a quarter of a GiB or more, resident as the guest runs code. 32 MiB costs no time at boot of a small Linux."""
SPARE_PORTS: Final = 4
"""PCIe slots left for hot-plug: q35 takes devices only behind root ports that exist when it starts."""
_UUID_NAMESPACE: Final = uuid.UUID("6a4b9bd6-2d6f-5b0e-9d0d-1b2f6b1f7a51")
_MAC: Final = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_TAP: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}")  # IFNAMSIZ
_WORD: Final = re.compile(r"[A-Za-z0-9_.+-]{1,64}")


@dataclass(frozen=True, slots=True)
class Tap:
    """A network interface: the guest's address, and the tap device that was made for it."""

    mac: str
    tap: str
    model: str = "virtio"


@dataclass(frozen=True, slots=True)
class Definition:
    """All that determines the XML."""

    namespace: str
    name: str
    uid: str
    specification: Mapping[str, Any]
    """``spec.domain``."""
    accelerator: str
    taps: Sequence[Tap] = ()
    found: Mapping[str, Found] = field(default_factory=dict)
    """By name of the disk."""


def domain_name(namespace: str, name: str) -> str:
    """Return the domain's name; ``_`` occurs in neither part, so two objects never share one."""
    return f"{namespace}_{name}"


def domain_uuid(uid: str, specification: Mapping[str, Any]) -> str:
    """Return the uuid the guest sees in its firmware: the one asked for, else one that the object's uid determines.

    Raises:
        InvalidSpecification: when what was asked for is none.
    """
    wanted = (specification.get("firmware") or {}).get("uuid")
    if not wanted:
        return str(uuid.uuid5(_UUID_NAMESPACE, uid))
    try:
        return str(uuid.UUID(wanted))
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidSpecification(f"firmware.uuid: {wanted!r} is no UUID") from error


def to_xml(definition: Definition) -> str:
    """Return the domain's XML.

    Raises:
        InvalidSpecification: naming the field.
    """
    specification = definition.specification
    root = Element("domain", type=_accelerator(definition.accelerator))
    SubElement(root, "name").text = domain_name(definition.namespace, definition.name)
    SubElement(root, "uuid").text = domain_uuid(definition.uid, specification)
    SubElement(root, "memory", unit="b").text = str(_memory(specification))
    _append_processors(root, definition)
    _append_os(root, specification)
    features = SubElement(root, "features")
    SubElement(features, "acpi")
    SubElement(features, "apic")
    if definition.accelerator == "qemu":
        SubElement(SubElement(features, "tcg"), "tb-cache", unit="MiB").text = str(TRANSLATION_CACHE_MEBIBYTES)
    _append_clock(root, definition.accelerator)
    for event, action in (("on_poweroff", "destroy"), ("on_reboot", "restart"), ("on_crash", "destroy")):
        SubElement(root, event).text = action
    _append_devices(SubElement(root, "devices"), definition)
    indent(root)
    return tostring(root, encoding="unicode")


def _accelerator(name: str) -> str:
    if name not in ("qemu", "kvm"):
        raise InvalidSpecification(f"accelerator: {name!r} is neither qemu nor kvm")
    return name


def _memory(specification: Mapping[str, Any]) -> int:
    try:
        amount = hardware.memory_bytes(specification)
    except ValueError as error:
        raise InvalidSpecification(f"memory.guest: {error}") from error
    if amount < 1:
        raise InvalidSpecification(f"memory.guest: {amount} bytes are no memory")
    return amount


def _append_processors(root: Element, definition: Definition) -> None:
    wanted = definition.specification.get("cpu") or {}
    counts = {key: int(wanted.get(key) or 1) for key in ("sockets", "cores", "threads")}
    if min(counts.values()) < 1:
        raise InvalidSpecification("cpu: sockets, cores and threads are at least 1")
    SubElement(root, "vcpu", placement="static").text = str(counts["sockets"] * counts["cores"] * counts["threads"])
    match wanted.get("model") or "":
        case "" | "host-passthrough" if definition.accelerator == "kvm":
            cpu = SubElement(root, "cpu", mode="host-passthrough", check="none", migratable="on")
        case "host-model" if definition.accelerator == "kvm":
            cpu = SubElement(root, "cpu", mode="host-model", check="partial")
        case "" | "host-passthrough" | "host-model":
            # Everything the emulator can do: what today's distributions ask for (qemu64 is below their x86-64-v2), and a Linux boots with
            # it as fast as with named models (2.2 to 2.5 s of processor time for all). The host has no part in it: the same on every node.
            cpu = SubElement(root, "cpu", mode="maximum", check="none", migratable="on")
        case model:
            cpu = SubElement(root, "cpu", mode="custom", match="exact", check="none")
            SubElement(cpu, "model", fallback="forbid").text = _word(model, "cpu.model")
    SubElement(cpu, "topology", sockets=str(counts["sockets"]), cores=str(counts["cores"]), threads=str(counts["threads"]))


def _append_os(root: Element, specification: Mapping[str, Any]) -> None:
    machine = _word((specification.get("machine") or {}).get("type") or "q35", "machine.type")
    element = SubElement(root, "os")
    SubElement(element, "type", arch="x86_64", machine=machine).text = "hvm"
    kernel_boot = (specification.get("firmware") or {}).get("kernelBoot")
    if kernel_boot:
        _append_kernel(element, kernel_boot)
    elif not any(disk.get("bootOrder") for disk in hardware.disks(specification)):
        SubElement(element, "boot", dev="hd")
        SubElement(element, "boot", dev="cdrom")


def _append_kernel(element: Element, kernel_boot: Mapping[str, Any]) -> None:
    container = kernel_boot.get("container") or {}
    for key, tag, required in (("kernelPath", "kernel", True), ("initrdPath", "initrd", False)):
        value = container.get(key)
        if value or required:
            # In an image everything lies below its root, so a leading slash means that root.
            relative = value.lstrip("/") if isinstance(value, str) else value
            path = confined(layout.KERNEL_BOOT_DIRECTORY, relative, f"firmware.kernelBoot.container.{key}")
            SubElement(element, tag).text = str(path)
    if arguments := kernel_boot.get("kernelArgs"):
        SubElement(element, "cmdline").text = _printable(arguments, "firmware.kernelBoot.kernelArgs")


def _append_clock(root: Element, accelerator: str) -> None:
    clock = SubElement(root, "clock", offset="utc")
    if accelerator == "kvm":  # the emulator knows neither tick policies nor a need for them
        SubElement(clock, "timer", name="rtc", tickpolicy="catchup")
        SubElement(clock, "timer", name="pit", tickpolicy="delay")
    SubElement(clock, "timer", name="hpet", present="no")


def _append_devices(devices: Element, definition: Definition) -> None:
    SubElement(devices, "emulator").text = EMULATOR
    append_disks(devices, definition.specification, definition.found)
    for tap in definition.taps:
        _append_interface(devices, tap)
    SubElement(devices, "controller", type="virtio-serial", index="0")
    if hardware.consoles(definition.specification):
        serial = SubElement(devices, "serial", type="unix")
        SubElement(serial, "source", mode="bind", path=_socket(layout.SERIAL_SOCKET))
        SubElement(serial, "target", port="0")
    channel = SubElement(devices, "channel", type="unix")
    SubElement(channel, "source", mode="bind", path=_socket(AGENT_SOCKET))
    SubElement(channel, "target", type="virtio", name=AGENT_CHANNEL)
    _append_graphics(devices, hardware.graphics(definition.specification))
    balloon = SubElement(devices, "memballoon", model="virtio", freePageReporting="on")
    SubElement(balloon, "stats", period="10")
    SubElement(SubElement(devices, "rng", model="virtio"), "backend", model="random").text = "/dev/urandom"
    SubElement(devices, "panic", model="isa")  # a guest's kernel tells its end through it, instead of standing there for ever
    _append_pci_ports(devices, definition.specification)


def _append_interface(devices: Element, tap: Tap) -> None:
    if not _MAC.fullmatch(tap.mac):
        raise InvalidSpecification(f"devices.interfaces: {tap.mac!r} is no MAC address")
    if not _TAP.fullmatch(tap.tap):
        raise InvalidSpecification(f"devices.interfaces: {tap.tap!r} is no name of a device")
    element = SubElement(devices, "interface", type="ethernet")
    SubElement(element, "mac", address=tap.mac.lower())
    SubElement(element, "target", dev=tap.tap, managed="no")
    SubElement(element, "model", type=_word(tap.model, "devices.interfaces.model"))
    SubElement(element, "rom", enabled="no")  # network boot is not offered, so the image needs no option ROMs


def _append_graphics(devices: Element, graphics: Sequence[Mapping[str, Any]]) -> None:
    sockets = {"vnc": layout.VNC_SOCKET, "spice": layout.SPICE_SOCKET}
    for index, wanted in enumerate(graphics):
        kind = str(wanted.get("type"))
        socket = sockets.pop(kind, None)
        if socket is None:
            raise InvalidSpecification(f"devices.graphics[{index}].type: {kind!r} is not supported, or there twice")
        element = SubElement(devices, "graphics", type=kind)
        SubElement(element, "listen", type="socket", socket=_socket(socket))
    if graphics:
        SubElement(SubElement(devices, "video"), "model", type="vga", vram="16384")
        SubElement(devices, "controller", type="usb", index="0", model="qemu-xhci")
        SubElement(devices, "input", type="tablet", bus="usb")  # absolute positions: the pointer is where the viewer's is
    else:
        SubElement(SubElement(devices, "video"), "model", type="none")
        SubElement(devices, "controller", type="usb", index="0", model="none")


def _append_pci_ports(devices: Element, specification: Mapping[str, Any]) -> None:
    """Append a root port for every device that will need one, and some to spare."""
    if "q35" not in str((specification.get("machine") or {}).get("type") or "q35"):
        return
    needed = len(devices.findall("interface"))
    needed += sum(disk.find("target[@bus='virtio']") is not None for disk in devices.findall("disk"))
    needed += sum(controller.get("model") in ("virtio-scsi", "qemu-xhci") for controller in devices.findall("controller"))
    needed += 3  # virtio-serial, balloon, rng
    SubElement(devices, "controller", type="pci", index="0", model="pcie-root")
    for _ in range(needed + SPARE_PORTS):
        SubElement(devices, "controller", type="pci", model="pcie-root-port")


def _socket(name: str) -> str:
    return f"{layout.RUN_DIRECTORY}/{name}"


def _word(value: object, path: str) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise InvalidSpecification(f"{path}: {value!r} is not allowed")
    return value


def _printable(value: object, path: str) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise InvalidSpecification(f"{path}: control characters are not allowed")
    return value
