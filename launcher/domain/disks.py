"""Disks and CD-ROM drives: ``<disk>``."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt.hardware import disks as hardware
from apiserver.apis.virt.hardware import io_threads, plugin_disks
from apiserver.apis.virt.hardware import network_disks as over_network
from launcher.domain import disk_driver, disk_io_tune, network_disks
from launcher.domain import plugin_disks as by_plugin
from launcher.domain.definition import Definition, Tree
from launcher.domain.disk_origins import Found, Origin, file_of, is_device, origins
from launcher.domain.values import InvalidSpecification

_BUS_PREFIX: Final = {"virtio": "vd", "sata": "sd", "scsi": "sd", "usb": "sd"}
_TARGET: Final = re.compile(r"(?:vd|sd)[a-z]{1,2}")
_SCSI_DISKS: Final = 7
"""Target names on one SCSI controller."""
_SERIAL_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "_.+-: ")


def append(tree: Tree, definition: Definition) -> None:
    """Append a ``<disk>`` for each disk, and its controllers."""
    specification = definition.specification
    targets = _targets(specification, definition.targets)
    threads, queues = io_threads.assigned(specification), hardware.queues(specification)
    for disk, origin, target in zip(hardware.defaulted(specification), origins(specification), targets, strict=True):
        driver = _append_disk(tree.devices, disk, origin, definition.found.get(origin.name, Found()), target)
        if thread := threads.get(origin.name):
            driver.set("iothread", str(thread))
        if over_network.copies_writes(disk):
            driver.attrib.update({"queues": "1", "queue_size": str(over_network.REQUESTS)})
        elif queues and target[1] == "virtio":
            driver.set("queues", str(queues))
    for index in range(_scsi_controllers(targets)):
        controller = SubElement(tree.devices, "controller", type="scsi", index=str(index), model="virtio-scsi")
        if queues:
            SubElement(controller, "driver", queues=str(queues))


def names_by_target(specification: Mapping[str, Any], given: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return the disks' names by libvirt's target names (``vda``); ``given`` as in :func:`assigned`."""
    return {target: name for name, target in assigned(given, specification).items()}


def assigned(given: Mapping[str, str], specification: Mapping[str, Any]) -> dict[str, str]:
    """Return libvirt's target names of the specification's disks, by the disks' names.

    ``given`` has a running guest's, by disk: they stay. It also has those of just removed disks: for one moment the guest may have both.
    """
    buses = {str(disk["name"]): _bus(disk, index) for index, disk in enumerate(hardware.defaulted(specification))}
    found: dict[str, str] = {}
    for name, bus in buses.items():
        if (target := given.get(name, "")) not in found.values() and _TARGET.fullmatch(target) and target.startswith(_BUS_PREFIX[bus]):
            found[name] = target
    taken = {*given.values(), *found.values()}
    for name in (each for each in buses if each not in found):
        free = (_BUS_PREFIX[buses[name]] + _letters(index) for index in itertools.count())
        found[name] = next(each for each in free if each not in taken)
        taken.add(found[name])
    return {name: found[name] for name in buses}


def _targets(specification: Mapping[str, Any], given: Mapping[str, str]) -> list[tuple[str, str]]:
    named = assigned(given, specification)
    return [(named[str(disk["name"])], str(disk["target"]["bus"])) for disk in hardware.defaulted(specification)]


def _scsi_controllers(targets: Sequence[tuple[str, str]]) -> int:
    places = [_index(target) for target, bus in targets if bus == "scsi"]
    return max(places) // _SCSI_DISKS + 1 if places else 0


def _append_disk(devices: Element, disk: Mapping[str, Any], origin: Origin, found: Found, target: tuple[str, str]) -> Element:
    kind = "network" if origin.network else "block" if is_device(origin, found) else "file"
    if hardware.is_lun(disk) and ((kind != "block" and disk.get("type") != over_network.ISCSI) or target[1] != "scsi"):
        text = "lun requires bus scsi, and a claim with volumeMode Block or an iSCSI target"
        raise InvalidSpecification(f"devices.disks[{origin.name}].device: {text}")
    element = SubElement(devices, "disk", type=kind, device=str(disk["device"]))
    driver = disk_driver.append(element, disk, origin, found)
    if origin.network:
        (by_plugin if plugin_disks.is_plugin(disk) else network_disks).append_source(element, disk)
    elif not origin.empty:
        SubElement(element, "source", {"dev" if is_device(origin, found) else "file": str(file_of(origin, found))})
    SubElement(element, "target", dev=target[0], bus=target[1])
    disk_io_tune.append(element, disk)
    disk_driver.append_sizes(element, disk)
    if serial := disk.get("serial"):
        SubElement(element, "serial").text = _serial(serial, origin.name)
    if wwn := disk.get("wwn"):
        SubElement(element, "wwn").text = _wwn(wwn, origin.name)
    if order := disk.get("bootOrder"):
        SubElement(element, "boot", order=str(int(order)))
    if origin.read_only:
        SubElement(element, "readonly")
    if disk.get("shareable"):
        SubElement(element, "shareable")
    return driver


def _bus(disk: Mapping[str, Any], index: int) -> str:
    bus = disk["target"]["bus"]
    if bus not in _BUS_PREFIX or (disk["device"] == "cdrom" and bus == "virtio"):
        raise InvalidSpecification(f"devices.disks[{index}].target.bus: {bus!r} is not supported here")
    return str(bus)


def _serial(serial: object, name: str) -> str:
    if not isinstance(serial, str) or not set(serial) <= _SERIAL_CHARACTERS:
        raise InvalidSpecification(f"devices.disks: the serial of {name!r} has characters that libvirt does not allow")
    return serial


def _wwn(wwn: object, name: str) -> str:
    if not isinstance(wwn, str) or not hardware.WWN.fullmatch(wwn):
        raise InvalidSpecification(f"devices.disks: the World Wide Name of {name!r} is none")
    return wwn.lower()


def _letters(index: int) -> str:
    text = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, 26)
        text = string.ascii_lowercase[digit] + text
    return text


def _index(target: str) -> int:
    position = 0
    for letter in target[2:]:
        position = position * 26 + string.ascii_lowercase.index(letter) + 1
    return position - 1
