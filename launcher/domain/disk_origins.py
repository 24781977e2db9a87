"""Origins of disks: the places of their data in the pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from apiserver.apis.virt import cloud_init, layout
from apiserver.apis.virt.hardware import disks
from launcher.domain.values import InvalidSpecification, confined, segment

Format = Literal["raw", "qcow2"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of a disk's data in the pod."""

    name: str
    path: PurePosixPath
    """For a claim the mount point or the device, for an image the file."""
    image: bool
    """Read-only by nature: a disk the guest may write to gets an overlay."""
    read_only: bool
    limit: int = 0
    """Bytes that an image may hold on top of which the guest writes."""
    made: bool = False
    """The file is made in this pod, before the domain is."""

    @property
    def overlay(self) -> PurePosixPath | None:
        """Return the qcow2 file on top of an image that the guest writes to, or None."""
        if not self.image or self.read_only:
            return None
        return PurePosixPath(layout.OVERLAYS_DIRECTORY, f"{self.name}.qcow2")


@dataclass(frozen=True, slots=True)
class Found:
    """Findings of the caller at an origin."""

    block: bool = False
    """The path is a block device; else it is a directory with ``layout.DISK_IMAGE``, or the file of an image."""
    format: Format = "raw"
    """Of an image. What a claim holds is always raw: guessing would let a guest turn its disk into somebody else's overlay."""
    direct: bool = True
    """The file system supports O_DIRECT."""


def origins(specification: Mapping[str, Any]) -> tuple[Origin, ...]:
    """Return where each disk of ``spec.domain`` comes from, in order.

    Raises:
        InvalidSpecification: for names twice, paths that leave their volume, unknown types.
    """
    result: list[Origin] = []
    for index, disk in enumerate(disks.defaulted(specification)):
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
            case kind if kind in cloud_init.MADE:
                result.append(Origin(name, PurePosixPath(layout.MADE_DIRECTORY, f"{name}.iso"), image=True, read_only=True, made=True))
            case other:
                raise InvalidSpecification(f"{path}.type: {other!r} is not supported")
    return tuple(result)


def file_of(origin: Origin, found: Found) -> PurePosixPath:
    """Return the file or device that QEMU opens."""
    return origin.overlay or (origin.path if origin.image or found.block else origin.path / layout.DISK_IMAGE)


def format_of(origin: Origin, found: Found) -> Format:
    """Return the format of that file."""
    return "qcow2" if origin.overlay else found.format if origin.image else "raw"


def _limit(disk: Mapping[str, Any], path: str) -> int:
    try:
        return disks.overlay_bytes(disk)
    except ValueError as error:
        raise InvalidSpecification(f"{path}.source.sizeLimit: {error}") from error


def not_migratable(specification: Mapping[str, Any]) -> str:
    """Return why a domain of this specification cannot be migrated live, or an empty string."""
    private = [origin.name for origin in origins(specification) if origin.overlay is not None]
    if private:
        return f"what the guest wrote to the image disk {private[0]!r} exists in its pod only"
    cached = [disk["name"] for disk in disks.defaulted(specification) if disks.is_cached(disk) and not disk["readOnly"]]
    return f"the page cache of its node has data of the disk {cached[0]!r} (driver.cache)" if cached else ""
