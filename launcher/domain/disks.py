"""Where each disk of a specification comes from, and how it is presented to the guest."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, Literal
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt import hardware, layout

Format = Literal["raw", "qcow2"]

_BUS_PREFIX: Final = {"virtio": "vd", "sata": "sd", "scsi": "sd"}
_SERIAL_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "_.+-: ")


class InvalidSpecification(Exception):
    """A specification from which no domain can be made; the message starts with the path of the field."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the data of a disk is in the pod."""

    name: str
    path: PurePosixPath
    """For a claim the mount point or the device, for an image the file."""
    image: bool
    """Read-only by nature: a disk the guest may write to gets an overlay."""
    read_only: bool
    limit: int = 0
    """Bytes that an image may hold on top of which the guest writes."""

    @property
    def overlay(self) -> PurePosixPath | None:
        """Return the qcow2 file on top of an image that the guest writes to, or None."""
        if not self.image or self.read_only:
            return None
        return PurePosixPath(layout.OVERLAYS_DIRECTORY, f"{self.name}.qcow2")


@dataclass(frozen=True, slots=True)
class Found:
    """What the caller found at an origin."""

    block: bool = False
    """The path is a block device; else it is a directory with ``layout.DISK_IMAGE``, or the file of an image."""
    format: Format = "raw"
    """Of an image. What a claim holds is always raw: guessing would let a guest turn its disk into somebody else's overlay."""
    direct: bool = True
    """The file system supports O_DIRECT."""


def segment(value: object, path: str) -> str:
    """Return ``value`` if it can be one component of a path.

    Raises:
        InvalidSpecification: when it is empty, has a slash or would lead elsewhere.
    """
    if not isinstance(value, str) or not value or value in (".", "..") or "/" in value or not value.isprintable():
        raise InvalidSpecification(f"{path}: {value!r} is no name of a file")
    return value


def confined(root: str, value: object, path: str) -> PurePosixPath:
    """Return ``value`` below ``root``.

    Raises:
        InvalidSpecification: when it is absolute, empty or would climb out.
    """
    relative = PurePosixPath(value) if isinstance(value, str) else PurePosixPath()
    if not isinstance(value, str) or not relative.parts or relative.is_absolute() or ".." in relative.parts or not value.isprintable():
        raise InvalidSpecification(f"{path}: {value!r} is no relative path inside its volume")
    return PurePosixPath(root) / relative


def origins(specification: Mapping[str, Any]) -> tuple[Origin, ...]:
    """Return where each disk of ``spec.domain`` comes from, in order.

    Raises:
        InvalidSpecification: for names twice, paths that leave their volume, unknown types.
    """
    result: list[Origin] = []
    for index, disk in enumerate(hardware.disks(specification)):
        path = f"devices.disks[{index}]"
        name = segment(disk["name"], f"{path}.name")
        if any(name == other.name for other in result):
            raise InvalidSpecification(f"{path}.name: {name!r} is taken by another disk")
        read_only = bool(disk["readOnly"]) or disk["device"] == "cdrom"
        match disk.get("type"):
            case "PersistentVolumeClaim":
                result.append(Origin(name, PurePosixPath(layout.DISKS_DIRECTORY, name), image=False, read_only=read_only))
            case "Image":
                file = confined(f"{layout.IMAGES_DIRECTORY}/{name}", disk["source"]["path"], f"{path}.source.path")
                result.append(Origin(name, file, image=True, read_only=read_only, limit=_limit(disk, path)))
            case other:
                raise InvalidSpecification(f"{path}.type: {other!r} is not supported")
    return tuple(result)


def _limit(disk: Mapping[str, Any], path: str) -> int:
    try:
        return hardware.overlay_bytes(disk)
    except ValueError as error:
        raise InvalidSpecification(f"{path}.source.sizeLimit: {error}") from error


def not_migratable(specification: Mapping[str, Any]) -> str:
    """Return why a domain of this specification cannot be migrated live, or an empty string."""
    private = [origin.name for origin in origins(specification) if origin.overlay is not None]
    if private:
        return f"what the guest wrote to the image disk {private[0]!r} exists in its pod only"
    return ""


def append_disks(devices: Element, specification: Mapping[str, Any], found: Mapping[str, Found]) -> None:
    """Append a ``<disk>`` for every disk, and the controllers they need."""
    targets = _targets(specification)
    for disk, origin, target in zip(hardware.disks(specification), origins(specification), targets, strict=True):
        _append_disk(devices, disk, origin, found.get(origin.name, Found()), target)
    if "scsi" in {bus for _, bus in targets}:
        SubElement(devices, "controller", type="scsi", index="0", model="virtio-scsi")


def names_by_target(specification: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of disks by what libvirt calls them (``vda``)."""
    targets = _targets(specification)
    return {target: str(disk["name"]) for disk, (target, _) in zip(hardware.disks(specification), targets, strict=True)}


def _targets(specification: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (device, bus) of each disk, in order."""
    used: dict[str, int] = {}
    found = []
    for index, disk in enumerate(hardware.disks(specification)):
        bus = _bus(disk, index)
        prefix = _BUS_PREFIX[bus]
        found.append((prefix + _letters(used.get(prefix, 0)), bus))
        used[prefix] = used.get(prefix, 0) + 1
    return found


def _append_disk(devices: Element, disk: Mapping[str, Any], origin: Origin, found: Found, target: tuple[str, str]) -> None:
    overlay = origin.overlay
    file = overlay or (origin.path if origin.image or found.block else origin.path / layout.DISK_IMAGE)
    image_format: Format = "qcow2" if overlay else found.format if origin.image else "raw"
    element = SubElement(devices, "disk", type="block" if found.block else "file", device=str(disk["device"]))
    driver = SubElement(element, "driver", name="qemu", type=image_format)
    if found.direct:
        # Without O_DIRECT the data of two hosts' page caches could differ after a migration. io=native blocks the main loop while a
        # sparse file grows, so it is for devices only.
        driver.set("cache", "none")
        driver.set("io", "native" if found.block else "threads")
    if not origin.read_only:
        driver.set("discard", "unmap")
    if disk["device"] == "disk":
        # A file system that is full, storage that is away: the guest stands still until somebody unpauses it, and has lost nothing.
        driver.set("error_policy", "stop")
    SubElement(element, "source", {"dev" if found.block else "file": str(file)})
    SubElement(element, "target", dev=target[0], bus=target[1])
    if serial := disk.get("serial"):
        SubElement(element, "serial").text = _serial(serial, origin.name)
    if order := disk.get("bootOrder"):
        SubElement(element, "boot", order=str(int(order)))
    if origin.read_only:
        SubElement(element, "readonly")


def _bus(disk: Mapping[str, Any], index: int) -> str:
    bus = disk["target"]["bus"]
    if bus not in _BUS_PREFIX or (disk["device"] == "cdrom" and bus == "virtio"):
        raise InvalidSpecification(f"devices.disks[{index}].target.bus: {bus!r} is not supported here")
    return str(bus)


def _serial(serial: object, name: str) -> str:
    if not isinstance(serial, str) or not set(serial) <= _SERIAL_CHARACTERS:
        raise InvalidSpecification(f"devices.disks: the serial of {name!r} has characters that libvirt refuses")
    return serial


def _letters(index: int) -> str:
    """Return a, b, …, z, aa, …: how Linux counts disks."""
    text = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, 26)
        text = string.ascii_lowercase[digit] + text
    return text
