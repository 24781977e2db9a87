"""Rules between elements of XML that matches the grammar."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from apiserver.apis.virt.domainxml import disks, values
from apiserver.apis.virt.domainxml.grammar import Problem
from apiserver.apis.virt.domainxml.parsing import Node
from apiserver.apis.virt.hardware import memory
from apiserver.apis.virt.hardware.disks import MAX_SERIAL

_COUNTS: Final = ("sockets", "dies", "cores", "threads")
_OF_THE_NODE: Final = ("host-passthrough", "maximum")
"""Modes of ``<cpu>`` without a model."""
PAGE_SIZES: Final = {2 << 20: "2Mi", 1 << 30: "1Gi"}
"""Quantities, by bytes."""
_NO_NODES: Final[tuple[Node, ...]] = ()


def problems(root: Node) -> list[Problem]:
    """Return violations of rules between the elements of a document that matches the grammar."""
    return [
        *_memory(root),
        *_memory_backing(root),
        *_processors(root),
        *_identity(root),
        *_boot(root),
        *_firmware(root),
        *_disks(root),
        *_sockets(root),
        *_machine(root),
        *_accelerator(root),
    ]


def memory_bytes(root: Node) -> int:
    """Return the guest's memory in bytes: in libvirt, the sum of NUMA cells overrides ``<memory>``."""
    cells = _cells(root)
    return sum(values.in_bytes(each.get("memory"), each.get("unit")) for each in cells) if cells else _amount(root, "memory")


def topology(root: Node) -> tuple[int, int, int]:
    """Return sockets (times dies), cores and threads; without ``<topology>`` each processor is a socket."""
    node = root.find("cpu", "topology")
    if node is None:
        return _number(root, "vcpu"), 1, 1
    sockets, dies, cores, threads = (int(node.get(each, "1")) for each in _COUNTS)
    return sockets * dies, cores, threads


def io_thread_count(root: Node) -> int:
    """Count the I/O threads."""
    return _number(root, "iothreads")


def firmware(root: Node) -> str:
    """Return the kind of firmware in the XML: ``bios``, ``efi``, or ``secure`` (with Secure Boot)."""
    loader = root.find("os", "loader")
    if loader is None:
        return "bios"
    return "secure" if loader.get("secure") == "yes" else "efi"


def page_bytes(root: Node) -> int:
    """Return the bytes of a huge page; 0: ordinary pages."""
    page = root.find("memoryBacking", "hugepages", "page")
    return values.in_bytes(page.get("size"), page.get("unit")) if page is not None else 0


def is_read_only(disk: Node) -> bool:
    """Return whether the guest cannot write to a disk."""
    return disk.child("readonly") is not None or disk.get("device") == "cdrom"


def _cells(root: Node) -> tuple[Node, ...]:
    numa = root.find("cpu", "numa")
    return numa.all("cell") if numa is not None else _NO_NODES


def _devices(root: Node, kind: str) -> tuple[Node, ...]:
    devices = root.child("devices")
    return devices.all(kind) if devices is not None else _NO_NODES


def _number(root: Node, name: str) -> int:
    node = root.child(name)
    return int(node.text) if node is not None else 0


def _amount(root: Node, name: str) -> int:
    node = root.child(name)
    return values.in_bytes(node.text, node.get("unit")) if node is not None else 0


def _memory(root: Node) -> Iterator[Problem]:
    total = memory_bytes(root)
    place = "/domain/cpu/numa" if _cells(root) else "/domain/memory"
    if not memory.MIN.bytes <= total <= memory.MAX.bytes:
        yield Problem(place, f"must be 16 MiB to 16 TiB, and is {total} bytes")
    if root.child("maxMemory") is None:
        return
    if not _cells(root):
        yield Problem("/domain/maxMemory", "needs NUMA cells in /domain/cpu/numa")
    if not total <= _amount(root, "maxMemory") <= memory.MAX.bytes:
        yield Problem("/domain/maxMemory", "must be at least the guest's memory, and at most 16 TiB")


def _memory_backing(root: Node) -> Iterator[Problem]:
    backing, size = root.child("memoryBacking"), page_bytes(root)
    if backing is None:
        return
    source, access = backing.child("source"), backing.child("access")
    kind = source.get("type") if source is not None else ""
    if size and size not in PAGE_SIZES:
        yield Problem("/domain/memoryBacking/hugepages/page/@size", "must be 2 MiB or 1 GiB")
    elif size:
        for cell in _cells(root):
            if values.in_bytes(cell.get("memory"), cell.get("unit")) % size:
                yield Problem(f"{cell.path}/@memory", f"must be a multiple of the huge pages, {PAGE_SIZES[size]}")
    if size and kind == "anonymous":
        yield Problem("/domain/memoryBacking/source/@type", "must be memfd or absent with huge pages")
    if access is not None and not size and kind != "memfd":
        yield Problem(access.path, "needs <source type='memfd'/> or <hugepages>: otherwise the memory would be a file in the pod")


def _firmware(root: Node) -> Iterator[Problem]:
    """Yield violations of the rules for a UEFI ``<loader>``, as for ``firmware.bootloader.efi``, and an ``<nvram>`` without it."""
    kind, nvram = firmware(root), root.find("os", "nvram")
    if kind == "bios":
        if nvram is not None:
            yield Problem(nvram.path, "needs /domain/os/loader")
        return
    if nvram is None:
        yield Problem("/domain/os/nvram", f"is required with <loader>, with the value {values.NVRAM}")
    if not _is_pcie(root):
        yield Problem("/domain/os/loader", "needs /domain/os/type/@machine q35 or one of its versions")
    if root.find("features", "acpi") is None:
        yield Problem("/domain/features/acpi", "is required: UEFI needs it")
    bios = root.find("os", "bios")
    if bios is not None and bios.get("useserial") == "yes":
        yield Problem(f"{bios.path}/@useserial", "may not be yes with <loader>: the machine has no BIOS")
    if kind != "secure":
        return
    smm = root.find("features", "smm")
    if smm is None or smm.get("state") != "on":
        yield Problem("/domain/features/smm/@state", "must be on: a secure <loader> needs it")
    if root.find("os", "kernel") is not None:
        yield Problem("/domain/os/loader/@secure", "must be no with <kernel>, because its signature is not checked")


def _processors(root: Node) -> Iterator[Problem]:
    count, vcpu = _number(root, "vcpu"), root.child("vcpu")
    if vcpu is not None and int(vcpu.get("current", "1")) > count:
        yield Problem("/domain/vcpu/@current", f"must be at most {count}")
    node = root.find("cpu", "topology")
    if node is not None and (product := math.prod(int(node.get(each, "1")) for each in _COUNTS)) != count:
        yield Problem(node.path, f"sockets x dies x cores x threads must be the number of processors, {count}, but is {product}")
    if (cpu := root.child("cpu")) is not None:
        yield from _cpu(cpu)


def _cpu(cpu: Node) -> Iterator[Problem]:
    model, mode = cpu.child("model"), cpu.get("mode", "custom")
    if model is not None and mode in _OF_THE_NODE:
        yield Problem(model.path, f"may not be set with mode {mode}")
    if model is None and mode == "custom" and (cpu.get("mode") or cpu.child("feature") or cpu.child("vendor")):
        yield Problem(f"{cpu.path}/model", "is required with mode custom")
    if cpu.get("migratable") and mode not in _OF_THE_NODE:
        yield Problem(f"{cpu.path}/@migratable", "may be set only with mode host-passthrough or maximum")
    cache = cpu.child("cache")
    if cache is None:
        return
    if cache.get("mode") == "emulate" and cache.get("level") != "3":
        yield Problem(f"{cache.path}/@level", "must be 3 with mode emulate")
    if cache.get("mode") == "passthrough" and (cache.get("level") or mode not in _OF_THE_NODE):
        yield Problem(f"{cache.path}/@mode", "mode passthrough has no level, and requires host-passthrough")


def _identity(root: Node) -> Iterator[Problem]:
    for name in ("name", "memory", "vcpu"):
        node = root.child(name)
        if node is not None and node.inner is None:
            yield Problem(node.path, "must have a start tag and an end tag, because its content may be filled in")
    name_of = root.child("name")
    if name_of is not None and not name_of.text:
        yield Problem(name_of.path, f"must not be empty; use {values.NAME}")
    uuid = root.child("uuid")
    if uuid is None and root.find("devices", "tpm") is not None:
        yield Problem("/domain/uuid", f"is required with <tpm>, because it names the TPM's state; use {values.UUID}")
    entries = root.find("sysinfo", "system")
    for entry in entries.all("entry") if entries is not None else ():
        if entry.get("name") == "uuid" and (uuid is None or entry.text.lower() != uuid.text.lower()):
            yield Problem(entry.path, "must be the same as /domain/uuid")
    smbios = root.find("os", "smbios")
    if smbios is not None and smbios.get("mode") == "sysinfo" and root.child("sysinfo") is None:
        yield Problem(f"{smbios.path}/@mode", "needs /domain/sysinfo")


def _boot(root: Node) -> Iterator[Problem]:
    system = root.child("os")
    orders = [each.child("boot") for kind in ("disk", "interface") for each in _devices(root, kind)]
    given = [each for each in orders if each is not None]
    if system is not None and system.all("boot") and given:
        yield Problem(given[0].path, "may not be set together with /domain/os/boot")
    yield from _twice((f"{each.path}/@order", each.get("order")) for each in given)
    for needs in ("initrd", "cmdline"):
        if system is not None and system.child(needs) is not None and system.child("kernel") is None:
            yield Problem(f"/domain/os/{needs}", "needs /domain/os/kernel")


def _disks(root: Node) -> Iterator[Problem]:
    found = _devices(root, "disk")
    targets = [(each, target) for each in found if (target := each.child("target")) is not None]
    yield from _twice((f"{target.path}/@dev", target.get("dev")) for _, target in targets)
    named = [(each, source) for each in found if (source := each.child("source")) is not None]
    yield from _twice((f"{each.path}/source", source.get(disks.SOURCES[each.get("type")])) for each, source in named)
    yield from _twice((each.path, each.text) for disk in found if (each := disk.child("serial")) is not None and each.text)
    yield from _twice((each.path, each.text.lower()) for disk in found if (each := disk.child("wwn")) is not None)
    for disk, target in targets:
        yield from _disk(root, disk, target.get("bus"))


def _disk(root: Node, disk: Node, bus: str) -> Iterator[Problem]:
    if disk.child("source") is None and disk.get("device") != "cdrom":
        yield Problem(f"{disk.path}/source", "is required: only the drive of a cdrom can be empty")
    if disk.get("device") == "cdrom" and bus == "virtio":
        yield Problem(f"{disk.path}/target/@bus", "of a cdrom must be scsi, sata, ide or usb")
    target = disk.child("target")
    if target is not None and target.get("removable") and bus != "usb":
        yield Problem(f"{disk.path}/target/@removable", "may be set only on bus usb")
    if target is not None and target.get("tray") and disk.get("device") != "cdrom":
        yield Problem(f"{disk.path}/target/@tray", "may be set only for a cdrom")
    for name in ("vendor", "product", "wwn"):
        if disk.child(name) is not None and bus not in (("scsi", "sata", "ide") if name == "wwn" else ("scsi",)):
            yield Problem(f"{disk.path}/{name}", "may not be set on this bus")
    serial, most = disk.child("serial"), MAX_SERIAL[bus]
    if serial is not None and len(serial.text) > most:
        yield Problem(serial.path, f"must be at most {most} characters on bus {bus}: the guest sees no more")
    if (driver := disk.child("driver")) is not None:
        yield from _disk_driver(root, disk, driver, bus)


def _disk_driver(root: Node, disk: Node, driver: Node, bus: str) -> Iterator[Problem]:
    if (backing := disk.child("backingStore")) is not None and driver.get("type") == "qcow2":
        yield Problem(backing.path, "is allowed only on a raw disk: on qcow2, it would cut off the backing file")
    if driver.get("io") == "native" and driver.get("cache") not in ("none", "directsync"):
        yield Problem(f"{driver.path}/@io", "native needs cache none or directsync")
    for name in ("iothread", "queues"):
        if driver.get(name) and bus != "virtio":
            yield Problem(f"{driver.path}/@{name}", "may be set only on bus virtio")
    if int(driver.get("iothread", "0")) > io_thread_count(root):
        yield Problem(f"{driver.path}/@iothread", "must be one of the threads of /domain/iothreads")


def _sockets(root: Node) -> Iterator[Problem]:
    for kind in ("serial", "channel", "graphics"):
        used = [(each.path, each.get("type")) for each in _devices(root, kind) if each.get("type") in ("unix", "spicevmc", "vnc", "spice")]
        yield from _twice(used)
    ports = _devices(root, "serial")
    consoles = [each for each in _devices(root, "console") if each.get("type") == "unix"]
    yield from _twice((each.path, each.get("type")) for each in consoles)
    if consoles and (not ports or ports[0].get("type") != "unix"):
        yield Problem(consoles[0].path, "is of type unix, so the first <serial> must be too")
    spice = any(each.get("type") == "spice" for each in _devices(root, "graphics"))
    for channel in _devices(root, "channel"):
        if channel.get("type") == "spicevmc" and not spice:
            yield Problem(channel.path, "needs <graphics type='spice'>")


def _is_pcie(root: Node) -> bool:
    return "q35" in _machine_type(root)


def _machine_type(root: Node) -> str:
    system = root.find("os", "type")
    return system.get("machine") if system is not None else ""


def _machine(root: Node) -> Iterator[Problem]:
    kind, is_pcie = _machine_type(root), _is_pcie(root)
    for controller in _devices(root, "controller"):
        driver = controller.child("driver")
        if driver is not None and driver.attributes and controller.get("model") != "virtio-scsi":
            yield Problem(driver.path, "may be set only for model virtio-scsi")
        if is_pcie and controller.get("type") == "ide":
            yield Problem(f"{controller.path}/@type", f"bus ide does not exist on a {kind}")
    for disk in _devices(root, "disk") if is_pcie else ():
        if (target := disk.child("target")) is not None and target.get("bus") == "ide":
            yield Problem(f"{target.path}/@bus", f"bus ide does not exist on a {kind}")
    for watchdog in _devices(root, "watchdog") if is_pcie else ():
        if watchdog.get("model") == "ib700":
            yield Problem(f"{watchdog.path}/@model", f"ib700 needs an ISA bus, which a {kind} does not have; use i6300esb")
    for device in _devices(root, "input"):
        if (device.get("type"), device.get("bus")) == ("tablet", "ps2"):
            yield Problem(f"{device.path}/@bus", "of a tablet must be usb or virtio")
    bios = root.find("os", "bios")
    if bios is not None and bios.get("useserial") == "yes" and not _devices(root, "serial"):
        yield Problem(f"{bios.path}/@useserial", "needs a serial port")


def _accelerator(root: Node) -> Iterator[Problem]:
    if root.find("features", "tcg") is not None and root.get("type") != "qemu":
        yield Problem("/domain/features/tcg", "may be set only with /domain/@type qemu")


def _twice(found: Iterable[tuple[str, str]]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for path, value in found:
        if value in seen:
            yield Problem(path, f"is already used at {seen[value]}")
        seen.setdefault(value, path)
