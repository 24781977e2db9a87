"""Converts between our values and libvirt's: job statistics, typed parameters, XML, answers of guest agents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

import libvirt

from apiserver.apis.virt.hardware import disk_io_tune
from launcher.domain.values import snake
from launcher.hypervisor.port import NO_DISKS, Device, DeviceKind, Disks, HypervisorError, Memory, Progress, Terms, Usage

MAX_ANSWER: Final = 2 << 20
"""A list of 10,000 packages takes half. libvirt accepts five times as many characters, but our pod has less memory."""

_NAMED_BY: Final[Mapping[Usage, str]] = {"iscsi": "target", "ceph": "name"}
"""The element that names a secret."""


def progress(stats: Mapping[str, Any]) -> Progress | None:
    """Return the progress in virDomainGetJobStats' result; None if there was no job."""
    if "time_elapsed" not in stats and "memory_total" not in stats:
        return None
    rate = int(stats.get("memory_bps", 0)) + int(stats.get("disk_bps", 0))
    if not stats.get("memory_total", 0):  # disks come first, and libvirt reports no rate for them
        rate = rate or int(stats.get("disk_processed", 0)) * 1000 // max(int(stats.get("time_elapsed", 0)), 1)
    return Progress(
        elapsed_milliseconds=int(stats.get("time_elapsed", 0)),
        memory_total_bytes=int(stats.get("memory_total", 0)),
        memory_processed_bytes=int(stats.get("memory_processed", 0)),
        memory_remaining_bytes=int(stats.get("memory_remaining", 0)),
        iteration=int(stats.get("memory_iteration", 0)),
        downtime_milliseconds=int(stats.get("downtime", 0)),
        data_total_bytes=int(stats.get("data_total", 0)),
        data_processed_bytes=int(stats.get("data_processed", 0)),
        data_remaining_bytes=int(stats.get("data_remaining", 0)),
        bytes_per_second=rate,
        dirty_bytes_per_second=int(stats.get("memory_dirty_rate", 0)) * int(stats.get("memory_page_size", 0)),  # libvirt's rate is in pages
    )


def migration_parameters(terms: Terms, disks: Disks = NO_DISKS) -> tuple[dict[str, Any], int]:
    """Return typed parameters and flags of virDomainMigrateToURI3: those for ``terms`` and ``disks``; the caller adds the others."""
    parameters: dict[str, Any] = {}
    flags = 0
    if terms.bandwidth_bytes > 0:
        share = terms.bandwidth_bytes // max(len(disks.copied), 1)  # libvirt applies it to each disk, and copies them in parallel
        parameters[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = max(share >> 20, 1)  # MiB/s; 0 would mean no limit
    if terms.parallel_connections > 1:
        flags |= libvirt.VIR_MIGRATE_PARALLEL
        parameters[libvirt.VIR_MIGRATE_PARAM_PARALLEL_CONNECTIONS] = terms.parallel_connections
    if terms.auto_converge:
        flags |= libvirt.VIR_MIGRATE_AUTO_CONVERGE
    if disks.shared:
        # libvirt accepts only network file systems it recognizes. virt-controller checked that the claims are shared, and virt-launcher
        # opened their images without the page cache.
        flags |= libvirt.VIR_MIGRATE_UNSAFE
    if disks.copied:
        flags |= libvirt.VIR_MIGRATE_NON_SHARED_INC if disks.shallow else libvirt.VIR_MIGRATE_NON_SHARED_DISK
        parameters[libvirt.VIR_MIGRATE_PARAM_MIGRATE_DISKS] = list(disks.copied)
        parameters[libvirt.VIR_MIGRATE_PARAM_DISKS_URI] = disks.uri
    return parameters, flags


def at_target(xml: str, disks: Disks) -> str | None:
    """Return a domain's XML with its disks' paths at a migration's target; None if they are the same."""
    domain, moved, is_changed = fromstring(xml), dict(disks.moved), False  # noqa: S314  # libvirtd's
    for source in domain.iterfind("devices/disk/source"):
        if (path := moved.get(source.get("file", ""))) is not None:
            source.set("file", path)
            is_changed = True
    return tostring(domain, encoding="unicode") if is_changed else None


def cid(domain: Element) -> int:
    """Return the guest's vsock address (``<cid>``); 0 without one, or before libvirt chose it."""
    found = domain.find("devices/vsock/cid")
    address = found.get("address", "") if found is not None else ""
    return int(address) if address.isdecimal() else 0


def vcpus(domain: Element) -> int:
    """Return a domain's current number of processors; 0 if unknown."""
    found = domain.find("vcpu")
    number = "" if found is None else found.get("current") or (found.text or "").strip()
    return int(number) if number.isdecimal() else 0


def memory(domain: Element) -> Memory | None:
    """Return the memory of a domain with one virtio-mem device; else None."""
    if (device := _memory_device(domain)) is None:
        return None
    size, current, requested = (amount_of(device.find(f"target/{each}")) for each in ("size", "current", "requested"))
    return Memory(amount_of(domain.find("memory")) - size, current, requested)


def with_memory(domain: Element, amount: int) -> str:
    """Return the XML of a domain's virtio-mem device, changed in place, that requests ``amount`` bytes of memory in all.

    Raises:
        HypervisorError: the domain has no such device, or started with more memory.
    """
    now, device = memory(domain), _memory_device(domain)
    if now is None or device is None:
        raise HypervisorError("the guest started without room for more memory")
    if (wanted := device.find("target/requested")) is None:
        raise HypervisorError("libvirt does not say how much memory is requested")
    if amount < now.at_boot:
        raise HypervisorError(f"the guest started with {now.at_boot >> 20} MiB of memory, and cannot have less")
    wanted.set("unit", "b")
    wanted.text = str(amount - now.at_boot)
    return tostring(device, encoding="unicode")


def _memory_device(domain: Element) -> Element | None:
    found = domain.findall("devices/memory[@model='virtio-mem']")
    return found[0] if len(found) == 1 else None


def amount_of(element: Element | None) -> int:
    """Return the bytes that an element gives, in unit ``b`` or else in KiB; 0 without the element or a number."""
    text = "" if element is None else (element.text or "").strip()
    return int(text) * (1 if element is not None and element.get("unit") == "b" else 1024) if text.isdecimal() else 0


def disk_of(domain: Element, target: str) -> str | None:
    """Return the XML of the domain's disk with this target name, or None."""
    found = (disk for disk in domain.iterfind("devices/disk") if (name := disk.find("target")) is not None and name.get("dev") == target)
    return next((tostring(disk, encoding="unicode") for disk in found), None)


def source_of(disk: Element) -> Mapping[str, str]:
    """Return a disk's file, device or network name by its XML attribute; empty for a drive without a medium."""
    found = disk.find("source")
    return {} if found is None else {key: found.get(key, "") for key in ("file", "dev", "name") if found.get(key)}


def with_medium(domain: Element, target: str, disk: str) -> str | None:
    """Return a drive's XML with the medium, if any, in the XML ``disk``; None if the drive is missing, or has that medium already.

    All else stays, because libvirt refuses an update that changes more.
    """
    if (text := disk_of(domain, target)) is None:
        return None
    drive, wanted = fromstring(text), fromstring(disk)  # noqa: S314  # libvirtd's, and ours
    if source_of(drive) == source_of(wanted):
        return None
    for name in ("source", "backingStore"):
        for each in drive.findall(name):
            drive.remove(each)
    drive.set("type", wanted.get("type", "file"))
    drive.extend(wanted.findall("source"))
    own, given = drive.find("driver"), wanted.find("driver")
    if own is not None and given is not None:
        own.set("type", given.get("type", "raw"))
    return tostring(drive, encoding="unicode")


def missing_controllers(domain: Element, wanted: Sequence[str]) -> list[str]:
    """Return those of the ``wanted`` controllers (XML) that a domain lacks, compared by type and index."""
    there = {(each.get("type"), each.get("index")) for each in domain.iterfind("devices/controller")}
    parsed = ((text, fromstring(text)) for text in wanted)  # noqa: S314  # ours
    return [text for text, each in parsed if (each.get("type"), each.get("index")) not in there]


def targets_by_alias(domain: Element) -> dict[str, str]:
    """Return the target names of an active domain's disks (``vda``) by their aliases (``virtio-disk0``)."""
    found: dict[str, str] = {}
    for disk in domain.iterfind("devices/disk"):
        alias, target = disk.find("alias"), disk.find("target")
        if alias is not None and target is not None:
            found[alias.get("name", "")] = target.get("dev", "")
    return found


def devices(domain: Element) -> tuple[Device, ...]:
    """Return the disks and interfaces of a domain."""
    kinds: dict[str, DeviceKind] = {each: each for each in get_args(DeviceKind)}
    found = domain.find("devices")
    return tuple(_device(kinds[each.tag], each) for each in (found if found is not None else ()) if each.tag in kinds)


def _device(kind: DeviceKind, element: Element) -> Device:
    target, address, mac = (element.find(each) for each in ("target", "address", "mac"))
    name, hardware = (each.get(key, "") if each is not None else "" for each, key in ((target, "dev"), (mac, "address")))
    limits = _limits(element) if kind == "disk" else ()
    is_empty = kind == "disk" and element.get("device") == "cdrom" and not source_of(element)
    link = element.find("link")
    is_up = (link is None or link.get("state") != "down") if kind == "interface" and element.get("type") != "hostdev" else None
    return Device(kind, name, _address(address) if address is not None else "", hardware, limits, is_empty, is_up)


def _limits(disk: Element) -> tuple[tuple[str, int], ...]:
    found = {name: disk.findtext(f"iotune/{snake(name)}", "0") for name in disk_io_tune.NAMES}
    return tuple((name, int(value)) for name, value in found.items() if value.isdecimal() and int(value))


def io_tune(limits: Mapping[str, int]) -> dict[str, int]:
    """Return the typed parameters of virDomainSetBlockIoTune: 0, which removes a limit, for each one that is unset."""
    return {snake(name): limits.get(name, 0) for name in disk_io_tune.NAMES}


def with_link(domain: Element, mac: str, *, up: bool) -> str | None:
    """Return an interface's XML, changed in place, with link state ``up`` or down; None without that interface."""
    if (interface := _interface(domain, mac)) is None:
        return None
    for link in interface.findall("link"):
        interface.remove(link)
    SubElement(interface, "link", state="up" if up else "down")
    return tostring(interface, encoding="unicode")


def interface_of(domain: Element, mac: str) -> str | None:
    """Return the XML of the domain's interface with this MAC address, or None."""
    found = _interface(domain, mac)
    return None if found is None else tostring(found, encoding="unicode")


def _interface(domain: Element, mac: str) -> Element | None:
    for interface in domain.iterfind("devices/interface"):
        address = interface.find("mac")
        if address is not None and address.get("address", "").lower() == mac.lower():
            return interface
    return None


def _address(element: Element) -> str:
    """Return an ``<address>`` element as text: ``pci 0000:01:00.0``, ``drive 0:0:0:1``, ``usb 0:1``; of other types, only the type."""
    kind = element.get("type", "")
    if kind == "pci":
        domain, bus, slot, function = (int(element.get(each, "0"), 16) for each in ("domain", "bus", "slot", "function"))
        return f"{kind} {domain:04x}:{bus:02x}:{slot:02x}.{function:x}"
    places = {"drive": ("controller", "bus", "target", "unit"), "usb": ("bus", "port")}.get(kind)
    return f"{kind} {':'.join(element.get(each, '0') for each in places)}" if places else kind


def secret_xml(uuid: str, usage: Usage) -> str:
    """Return the XML of a disk server's secret, which libvirt keeps in memory and shows to no client."""
    root = Element("secret", ephemeral="yes", private="yes")
    SubElement(root, "uuid").text = uuid
    SubElement(SubElement(root, "usage", type=usage), _NAMED_BY[usage]).text = uuid
    return tostring(root, encoding="unicode")


def agent_answer(text: str) -> object:
    """Return the value of ``return`` in a guest agent's answer, which is JSON.

    Raises:
        ValueError: it is too long, or not an answer.
        RecursionError: it is nested too deeply.
    """
    if len(text) > MAX_ANSWER:
        raise ValueError("too long")
    answer = json.loads(text)
    if not isinstance(answer, dict) or "return" not in answer:
        raise ValueError("no answer")
    return answer["return"]
