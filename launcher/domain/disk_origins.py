"""Origins of disks: where their data is in the pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from apiserver.apis.virt.hardware import cloud_init, disks, host_disks, network_disks, plugin_disks
from apiserver.apis.virt.places import layout
from launcher.domain import plugin_disks as by_plugin
from launcher.domain.values import InvalidSpecification, confined, segment

Format = Literal["raw", "qcow2"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a disk's data is in the pod."""

    name: str
    path: PurePosixPath
    """The mount point of a claim (:attr:`device` if it is a block device), or an image's file."""
    image: bool
    """The path is a file that is never written to."""
    read_only: bool
    overlaid: bool = False
    """The guest's writes go to an overlay file (:func:`overlay_of`)."""
    limit: int = 0
    """Bytes of the disk below an overlay, or of a blank disk."""
    blank: bool = False
    """The overlay lacks a backing file."""
    created: int = 0
    """Bytes of the blank disk to create in an empty claim; 0: none."""
    made: bool = False
    """This pod makes the file."""
    empty: bool = False
    """A drive without a medium."""
    network: bool = False
    """QEMU connects to a server; there is no path."""
    plugin: bool = False
    """A node's plugin put the file there."""

    @property
    def device(self) -> PurePosixPath:
        """Return where the claim's block device is, if it is one."""
        return PurePosixPath(layout.DEVICES_DIRECTORY, self.name)

    @property
    def overlay(self) -> PurePosixPath | None:
        """Return the path of the overlay (qcow2) in the pod's own space; None for a disk without overlay.

        :func:`overlay_of` decides between it and :attr:`plugged_overlay`.
        """
        return PurePosixPath(layout.OVERLAYS_DIRECTORY, f"{self.name}.qcow2") if self.overlaid else None

    @property
    def plugged_overlay(self) -> PurePosixPath:
        """Return the overlay's path in the directory that virt-handler mounts for a disk that a running guest gets."""
        return PurePosixPath(layout.DISKS_DIRECTORY, layout.overlay_directory(self.name), layout.OVERLAY)


@dataclass(frozen=True, slots=True)
class Found:
    """Properties of the files at a disk's Origin, as found in the pod."""

    block: bool = False
    """The claim is a block device; else its path is a directory with ``layout.DISK_IMAGE``, or an image's file."""
    format: Format = "raw"
    """Of an image. Claims are always raw: with format detection, a guest could make its disk an overlay of another file."""
    direct: bool = True
    """The file system supports O_DIRECT."""
    plugged: bool = False
    """virt-handler mounted a directory for :attr:`Origin.plugged_overlay`."""


def origins(specification: Mapping[str, Any]) -> tuple[Origin, ...]:
    """Return each disk's origin in ``spec.domain``, in order.

    Raises InvalidSpecification for equal names, paths outside their volume and unknown types.
    """
    result: list[Origin] = []
    for index, disk in enumerate(disks.defaulted(specification)):
        path = f"devices.disks[{index}]"
        name = segment(disk["name"], f"{path}.name")
        if any(name == other.name for other in result):
            raise InvalidSpecification(f"{path}.name: {name!r} is already the name of another disk")
        read_only, overlaid = bool(disk["readOnly"]) or disk["device"] == "cdrom", disks.is_overlaid(disk)
        limit = _limit(disk, path) if overlaid else 0
        match disk.get("type"):
            case None if disks.is_empty_drive(disk):
                result.append(Origin(name, PurePosixPath(), image=False, read_only=True, empty=True))
            case "PersistentVolumeClaim":
                place = PurePosixPath(layout.DISKS_DIRECTORY, name)
                size = 0 if read_only or overlaid else _created(disk, path)
                result.append(Origin(name, place, image=False, read_only=read_only, overlaid=overlaid, limit=limit, created=size))
            case disks.EMPTY:
                result.append(Origin(name, PurePosixPath(), image=False, read_only=read_only, overlaid=True, limit=limit, blank=True))
            case "Image":
                file = confined(f"{layout.IMAGES_DIRECTORY}/{name}", disk["source"]["path"], f"{path}.source.path")
                result.append(Origin(name, file, image=True, read_only=read_only, overlaid=overlaid, limit=limit))
            case kind if kind in cloud_init.MADE:
                result.append(Origin(name, PurePosixPath(layout.MADE_DIRECTORY, f"{name}.iso"), image=True, read_only=True, made=True))
            case kind if kind in network_disks.KINDS:
                result.append(Origin(name, PurePosixPath(), image=False, read_only=read_only, network=True))
            case host_disks.HOST:
                result.append(Origin(name, PurePosixPath(layout.DISKS_DIRECTORY, name), image=False, read_only=read_only))
            case plugin_disks.PLUGIN:
                result.append(_of_plugin(name, by_plugin.served(disk, path).protocol, read_only=read_only))
            case other:
                raise InvalidSpecification(f"{path}.type: {other!r} is not supported")
    return tuple(result)


def _of_plugin(name: str, protocol: plugin_disks.Protocol, *, read_only: bool) -> Origin:
    if protocol == "nbd":
        return Origin(name, PurePosixPath(), image=False, read_only=read_only, network=True)
    return Origin(name, PurePosixPath(plugin_disks.path(name, protocol)), image=True, read_only=read_only, plugin=True)


def file_of(origin: Origin, found: Found) -> PurePosixPath:
    """Return the file or device that the domain opens for this disk; meaningless for network disks and empty drives."""
    return overlay_of(origin, found) or below(origin, found)


def overlay_of(origin: Origin, found: Found) -> PurePosixPath | None:
    """Return the qcow2 file that the guest writes to; None for a disk without overlay."""
    return origin.plugged_overlay if origin.overlay and found.plugged else origin.overlay


def below(origin: Origin, found: Found) -> PurePosixPath:
    """Return the file or device with the origin's data, perhaps an overlay's backing file; meaningless if there is none."""
    if found.block:
        return origin.device
    return origin.path if origin.image else origin.path / layout.DISK_IMAGE


def is_device(origin: Origin, found: Found) -> bool:
    """Return whether the domain opens a block device for this disk."""
    return found.block and not origin.overlaid


def format_of(origin: Origin, found: Found) -> Format:
    """Return the image format of the file that :func:`file_of` returns."""
    return "qcow2" if origin.overlay else found.format if origin.image else "raw"


def _limit(disk: Mapping[str, Any], path: str) -> int:
    try:
        return disks.overlay_bytes(disk)
    except ValueError as error:
        raise InvalidSpecification(f"{path}.source.sizeLimit: {error}") from error


def _created(disk: Mapping[str, Any], path: str) -> int:
    try:
        return disks.created_bytes(disk)
    except ValueError as error:
        raise InvalidSpecification(f"{path}.source.create.size: {error}") from error


def not_migratable(specification: Mapping[str, Any]) -> str:
    """Return why disks prevent live migration: files of the node, pods' tokens, or page caches; else empty."""
    of_node = [disk["name"] for disk in disks.defaulted(specification) if host_disks.is_host(disk)]
    if of_node:
        return f"the disk {of_node[0]!r} is a file of its node"
    tokens = [disk["name"] for disk in disks.defaulted(specification) if disk.get("type") == cloud_init.SERVICE_ACCOUNT]
    if tokens:
        return f"the token on the disk {tokens[0]!r} belongs to its pod and expires with it"
    shared = [disk for disk in disks.defaulted(specification) if not disk["readOnly"] and not disks.is_overlaid(disk)]
    cached = [disk["name"] for disk in shared if disks.is_cached(disk)]
    return f"data of the disk {cached[0]!r} may be only in the page cache of its node (driver.cache)" if cached else ""
