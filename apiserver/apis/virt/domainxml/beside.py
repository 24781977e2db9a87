"""Typed fields next to ``spec.domainXML``: disks and networks for its placeholders, processors and memory to override it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from apiserver.apis.virt.domainxml import parsing, reading, values
from apiserver.apis.virt.domainxml.grammar import Problem
from apiserver.apis.virt.domainxml.reading import Disk, Reading
from apiserver.apis.virt.hardware import disks as hardware
from apiserver.apis.virt.hardware import interfaces as hardware_interfaces
from apiserver.apis.virt.hardware import network_disks, plugin_disks
from apiserver.apis.virt.places import network

Shape: TypeAlias = "Mapping[str, Shape]"
_END: Final[Shape] = {}
"""All fields below."""

FIELDS: Final[Shape] = {
    "cpu": dict.fromkeys(("sockets", "cores", "threads"), _END),
    "memory": {"guest": _END},
    "resources": _END,
    "firmware": {
        "uuid": _END,
        "persistentState": {"claimName": _END},
        "kernelBoot": {"container": dict.fromkeys(("image", "imagePullPolicy", "kernelPath", "initrdPath"), _END)},
    },
    "devices": {
        "disks": dict.fromkeys(("name", "type", "device", "readOnly", "source"), _END),
        "interfaces": dict.fromkeys(("name", "type", "mac", "network", "ports"), _END),
    },
}
"""Fields of ``spec.domain`` with an effect next to the XML; lists as their elements."""


def foreign(given: object, shape: Shape = FIELDS, path: str = "") -> Iterator[str]:
    """Yield the paths of fields in ``given``, a part of ``spec.domain`` at ``path``, that ``domainXML`` makes ineffective.

    ``shape``: the effective fields.
    """
    if isinstance(given, list):
        for position, each in enumerate(given):
            yield from foreign(each, shape, f"{path}[{position}]")
    elif isinstance(given, Mapping):
        for name, value in given.items():
            place = f"{path}.{name}" if path else name
            if value is None:
                continue
            if name not in shape:
                yield place
            elif shape[name]:
                yield from foreign(value, shape[name], place)


def problems(found: Reading, root: parsing.Node, domain: Mapping[str, Any]) -> list[Problem]:
    """Return mismatches between the XML (``root``, and ``found`` as read from it) and the fields next to it.

    ``domain`` is as written, disks as of :func:`apiserver.apis.virt.hardware.disks.defaulted`.
    """
    devices = domain.get("devices") or {}
    disks = {str(each.get("name")): each for each in devices.get("disks") or ()}
    return [
        *_processors(found, root, domain),
        *_disks(found, disks),
        *_networks(found, root, devices.get("interfaces")),
        *_kernel(root, ((domain.get("firmware") or {}).get("kernelBoot") or {}).get("container")),
        *_uuid(root, (domain.get("firmware") or {}).get("uuid")),
    ]


def _processors(found: Reading, root: parsing.Node, domain: Mapping[str, Any]) -> Iterator[Problem]:
    cpu = {key: value for key, value in (domain.get("cpu") or {}).items() if value is not None}
    if not found.has_topology and any(int(cpu.get(each) or 1) != 1 for each in ("cores", "threads")):
        yield Problem("/domain/cpu/topology", "is required, because spec.domain.cpu replaces it")
    if cpu and root.find("cpu", "numa") is not None:
        yield Problem("/domain/cpu/numa", "may not be set together with spec.domain.cpu, because it assigns processors by number")
    if (domain.get("memory") or {}).get("guest") is not None and root.find("cpu", "numa") is not None:
        yield Problem("/domain/cpu/numa", "may not be set together with spec.domain.memory, because it divides the memory")


def _disks(found: Reading, declared: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    for disk in found.disks:
        given = declared.get(disk.name)
        if given is None:
            yield Problem(f"{disk.path}/source", f"spec.domain.devices.disks has no disk {disk.name}")
        elif hardware.is_empty_drive(given):
            yield Problem(
                f"{disk.path}/source", f"is not allowed: disk {disk.name} of spec.domain.devices.disks has neither type nor source"
            )
        elif hardware.is_lun(given):
            yield Problem(
                f"{disk.path}/@device",
                f"disks of device lun are not supported in XML, and disk {disk.name} of spec.domain.devices.disks is one",
            )
        else:
            yield from _disk(disk, given)
    used = {each.name for each in found.disks}
    for name in declared:
        if name not in used:
            yield Problem("/domain/devices", f"has no <disk> with the placeholder @disk:{name}@ of spec.domain.devices.disks")


def _disk(disk: Disk, given: Mapping[str, Any]) -> Iterator[Problem]:
    if network_disks.is_network(given) or plugin_disks.is_plugin(given):
        yield Problem(f"{disk.path}/source", f"disk {disk.name} is of type {given['type']}, which has no file in the pod")
        return
    read_only = bool(given.get("readOnly"))
    if read_only and not disk.is_read_only:
        yield Problem(f"{disk.path}/readonly", f"is required: disk {disk.name} of spec.domain.devices.disks is read-only")
    is_overlaid, is_image = hardware.is_overlaid(given), given.get("type") == "Image"
    if is_overlaid and disk.format != "qcow2":
        yield Problem(f"{disk.path}/driver/@type", f"must be qcow2, because the guest's writes to disk {disk.name} go to an overlay")
    if not is_overlaid and not is_image and disk.format != "raw":
        yield Problem(f"{disk.path}/driver/@type", f"must be raw, like disk {disk.name}")
    if (is_overlaid or is_image) and disk.is_block:
        yield Problem(f"{disk.path}/@type", f"must be file, because disk {disk.name} is {'an overlay' if is_overlaid else 'an image'}")


def _networks(found: Reading, root: parsing.Node, declared: list[Mapping[str, Any]] | None) -> Iterator[Problem]:
    names = {str(each.get("name")) for each in declared} if declared is not None else {DEFAULT_NETWORK}
    of_passt = {str(each.get("name")) for each in declared or () if each.get("type") == hardware_interfaces.PASST}
    devices = root.child("devices")
    interfaces = devices.all("interface") if devices is not None else ()
    seen: set[str] = set()
    for (name, _), element in zip(found.networks, interfaces, strict=True):
        mac = element.find("mac")
        placeholder = values.name_in(mac.get("address"), values.MAC) if mac is not None else ""
        if name not in names:
            yield Problem(f"{element.path}/target/@dev", f"spec.domain.devices.interfaces has no interface {name}")
        if name in of_passt:
            yield Problem(
                f"{element.path}/@type",
                f"type passt is not supported in XML, and interface {name} of spec.domain.devices.interfaces has it",
            )
        if name in seen:
            yield Problem(f"{element.path}/target/@dev", "another interface has the same one")
        if placeholder and placeholder != name:
            yield Problem(f"{element.path}/mac/@address", f"must be @mac:{name}@, like the interface")
        seen.add(name)
    for name in names - seen if declared is not None else ():
        yield Problem("/domain/devices", f"has no <interface> with the placeholder @network:{name}@ of spec.domain.devices.interfaces")


def _kernel(root: parsing.Node, container: Mapping[str, Any] | None) -> Iterator[Problem]:
    for name, field in (("kernel", "kernelPath"), ("initrd", "initrdPath")):
        in_xml, given = root.find("os", name) is not None, bool((container or {}).get(field))
        if in_xml and not given:
            yield Problem(f"/domain/os/{name}", f"needs spec.domain.firmware.kernelBoot.container.{field}")
        if given and not in_xml:
            yield Problem(f"/domain/os/{name}", f"is required, with the placeholder @{name}@ of spec.domain.firmware.kernelBoot")


def _uuid(root: parsing.Node, given: str | None) -> Iterator[Problem]:
    if given and root.child("uuid") is None:
        yield Problem("/domain/uuid", "is required, because spec.domain.firmware.uuid replaces it")


DEFAULT_NETWORK: Final = "default"
"""The XML may use it without a declaration."""


def combined(domain: Mapping[str, Any], found: Reading) -> dict[str, Any]:
    """Return the ``spec.domain`` that the XML (``found``) and the fields next to it mean together."""
    devices = domain.get("devices") or {}
    size = sized(domain, found.memory_bytes, found.topology)
    return {
        **domain,
        **_firmware(domain, found),
        "cpu": size["cpu"],
        "memory": size["memory"] | ({"hugepages": {"pageSize": found.page_size}} if found.page_size else {}),
        "machine": {"type": found.machine},
        "devices": {
            **devices,
            "disks": devices.get("disks") or [],
            "interfaces": _interfaces(devices.get("interfaces"), dict(found.networks)),
            "graphics": [{"type": each} for each in found.graphics],
            "consoles": [{"type": "pty"}] if found.has_serial else [],
            **({} if found.tpm == "none" else {"tpm": {"persistent": found.tpm == "persistent"}}),
        },
    }


def sized(domain: Mapping[str, Any], memory_bytes: int, topology: tuple[int, int, int]) -> dict[str, Any]:
    """Return ``cpu`` and ``memory.guest`` of ``domain``, or else of the XML, for :func:`combined`."""
    sockets, cores, threads = topology
    cpu = {key: value for key, value in (domain.get("cpu") or {}).items() if value is not None}
    given = (domain.get("memory") or {}).get("guest")
    in_xml = f"{-(-memory_bytes // values.KIB)}Ki"  # KiB as in libvirt, and readable
    return {
        "cpu": cpu or {"sockets": sockets, "cores": cores, "threads": threads},
        "memory": {"guest": in_xml if given is None else given},
    }


def _firmware(domain: Mapping[str, Any], found: Reading) -> dict[str, Any]:
    """Return ``{"firmware": …}`` of the spec and the XML, or {} if neither sets it.

    With a claim for its state, UEFI variables are persistent.
    """
    given = {key: value for key, value in (domain.get("firmware") or {}).items() if value is not None}
    if found.uuid and found.uuid != values.UUID:
        given.setdefault("uuid", found.uuid)
    if found.firmware != "bios":
        efi = {"secureBoot": found.firmware == "secure", "persistent": "persistentState" in given}
        given["bootloader"] = {"efi": efi}
    return {"firmware": given} if given else {}


def _interfaces(declared: list[dict[str, Any]] | None, macs: Mapping[str, str]) -> list[dict[str, Any]]:
    given = [{"name": each} for each in macs if each == DEFAULT_NETWORK] if declared is None else declared
    found = []
    for each in given:
        mac = each.get("mac") or macs.get(str(each.get("name")))
        found.append({**each, "mac": network.normal_mac(mac)} if mac else dict(each))
    return found


def read_document(text: str) -> tuple[Reading, parsing.Node]:
    """Return :func:`reading.read`'s result, and the XML's root.

    Raises:
        Malformed: the XML is invalid; its first problem is the message.
    """
    return reading.read(text), parsing.parse(text)
