"""Files of disks: checks of existing ones, which are untrusted, and creation of overlays."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from apiserver.apis.virt.places import layout
from launcher.domain.disk_origins import Format, Found, Origin, below, origins, overlay_of
from launcher.main.disks.qemu_img import ENVIRONMENT, QEMU_IMG
from launcher.main.programs.children import Children

MIB: Final = 1 << 20
_QCOW2_MAGIC: Final = b"QFI\xfb"
_EXTERNAL_DATA: Final = 1 << 2


class DiskUnusable(Exception):
    """A disk cannot be used; the message names it, and the reason."""


class NotReady(DiskUnusable):
    """A disk is not ready yet; the start can be repeated. ``unresolved``: those that wait for a host name."""

    def __init__(self, disks: tuple[str, ...], message: str, unresolved: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.disks = disks
        self.unresolved = unresolved


class ImagesMissing(NotReady):
    """Mounted claims without an image, which another process may still fill."""

    def __init__(self, disks: tuple[str, ...]) -> None:
        missing = "; ".join(f"disk {name!r}: {layout.DISK_IMAGE}: file not found in its claim" for name in disks)
        super().__init__(disks, f"{missing}; copy an image there, or set source.create")


class NoRoom(NotReady):
    """Claims have too little room for their disks; the message says how much."""


def look(specification: Mapping[str, Any]) -> dict[str, Found]:
    """Return what exists at each disk's origin, by the disk's name.

    Raises:
        ImagesMissing (a DiskUnusable): only images in claims are missing, and may still come.
        DiskUnusable: a file or device cannot be used, or the file of an image disk is missing.
        OSError: a claim's block device cannot be opened.
        InvalidSpecification: a disk is invalid.
    """
    found: dict[str, Found] = {}
    missing: list[str] = []
    for origin in origins(specification):
        try:
            found[origin.name] = _look(origin)
        except ImagesMissing as error:
            missing += error.disks
    if missing:
        raise ImagesMissing(tuple(missing))
    return found


async def make_overlays(children: Children, specification: Mapping[str, Any], found: Mapping[str, Found]) -> None:
    """Create the missing overlays with qemu-img. Raises CommandFailed, OSError."""
    for origin in origins(specification):
        its = found[origin.name]
        overlay = overlay_of(origin, its)
        if overlay is None or Path(overlay).exists():  # noqa: ASYNC240 - of the node's disk
            continue
        partial = f"{overlay}.new"
        content = [partial, str(origin.limit)] if origin.blank else ["-b", str(below(origin, its)), "-F", its.format, partial]
        await children.run([QEMU_IMG, "create", "-q", "-f", "qcow2", *content], ENVIRONMENT)
        os.rename(partial, overlay)  # noqa: PTH104  # pathlib in asynchronous code is what another rule forbids


def require_plugged(specification: Mapping[str, Any], found: Mapping[str, Found]) -> None:
    """Raise DiskUnusable for a missing overlay without a directory from virt-handler: this pod's own space is for its first disks."""
    for origin in origins(specification):
        if origin.overlay is not None and not found[origin.name].plugged and not Path(origin.overlay).exists():
            raise DiskUnusable(f"disk {origin.name!r}: virt-handler has not mounted a directory for its overlay")


def remove_overlay(name: str) -> None:
    """Remove the overlay of a disk that the guest gave back, so a disk of this name is blank again. Idempotent. Raises OSError."""
    origin = Origin(name, PurePosixPath(), image=False, read_only=False, overlaid=True)
    for each in (origin.plugged_overlay, origin.overlay):
        Path(str(each)).unlink(missing_ok=True)


def overlay_directory(origin: Origin) -> Path:
    """Return the directory for a disk's overlay: of the disk's attachment pod, if virt-handler mounted it, or of this pod."""
    plugged = Path(origin.plugged_overlay).parent
    return plugged if plugged.is_dir() else Path(layout.OVERLAYS_DIRECTORY)


def _look(origin: Origin) -> Found:
    path = Path(origin.path)
    if origin.empty or origin.network:
        return Found()
    if origin.made:
        return Found(direct=_direct_below(path.parent))
    if origin.blank:
        return Found(direct=_direct_under(origin), plugged=_is_plugged(origin))
    if origin.plugin:  # always raw: the guest could write the bytes that format detection reads
        return _of_file(_inside(path, str(path.parent), origin), "raw", origin)
    if origin.image:
        image = _inside(path, f"{layout.IMAGES_DIRECTORY}/{origin.name}", origin)
        return _of_file(image, image_format(image, origin.name), origin)
    if (size := device_size(origin)) is not None:
        _fits(size, origin)
        return Found(block=True, direct=_direct_under(origin), plugged=_is_plugged(origin))
    try:
        path.stat()
    except OSError as error:
        raise DiskUnusable(f"disk {origin.name!r}: {error.strerror or error}") from error
    image = path / layout.DISK_IMAGE
    if _is_absent(image):
        raise ImagesMissing((origin.name,))
    return _of_file(_inside(image, str(path), origin), "raw", origin)


def _of_file(file: Path, kind: Format, origin: Origin) -> Found:
    if origin.overlaid:
        _fits(virtual_size(file, kind), origin)
    return Found(format=kind, direct=_direct(file) and _direct_under(origin), plugged=_is_plugged(origin))


def _direct_under(origin: Origin) -> bool:
    return not origin.overlaid or _direct_below(overlay_directory(origin))


def _is_plugged(origin: Origin) -> bool:
    return origin.overlaid and overlay_directory(origin) == Path(origin.plugged_overlay).parent


def device_size(origin: Origin) -> int | None:
    """Return the bytes of a claim's block device; None if it is not one. Raises OSError."""
    path = Path(origin.device)
    if not path.is_block_device():
        return None
    with path.open("rb") as device:
        return device.seek(0, os.SEEK_END)


def _is_absent(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _inside(path: Path, root: str, origin: Origin) -> Path:
    """Return ``path`` if it is a regular file inside its volume, also after following links; else raise DiskUnusable."""
    named = path.relative_to(root)
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except OSError as error:
        lacks = origin.image and not origin.plugin and isinstance(error, FileNotFoundError)
        why = f"file {named} not found in its image" if lacks else f"{named}: {error.strerror or error}"
        raise DiskUnusable(f"disk {origin.name!r}: {why}") from error
    except RuntimeError as error:
        raise DiskUnusable(f"disk {origin.name!r}: {named} is a loop of symbolic links") from error
    if not real.is_relative_to(Path(root).resolve()) or not stat.S_ISREG(mode):
        raise DiskUnusable(f"disk {origin.name!r}: {named} is not a regular file inside its volume")
    return path


def image_format(path: Path, name: str) -> Format:
    """Return an image file's format. Raises DiskUnusable if it is unreadable, or a qcow2 file that names others, which QEMU would read."""
    try:
        with path.open("rb") as file:
            header = file.read(80)
    except OSError as error:
        raise DiskUnusable(f"disk {name!r}: {path.name}: {error.strerror or error}") from error
    if not header.startswith(_QCOW2_MAGIC):
        return "raw"
    # https://www.qemu.org/docs/master/interop/qcow2.html: backing file offset at 8, incompatible features at 72 (version 3)
    version, features = int.from_bytes(header[4:8], "big"), int.from_bytes(header[72:80], "big")
    if int.from_bytes(header[8:16], "big") or (version >= 3 and features & _EXTERNAL_DATA):
        raise DiskUnusable(f"disk {name!r}: {path.name} refers to other files (a backing file or a data file)")
    return "qcow2"


def virtual_size(path: Path, kind: Format) -> int:
    """Return an image's virtual size in bytes, untrusted because the guest may overwrite it. Raises OSError."""
    if kind == "raw":
        return path.stat().st_size
    with path.open("rb") as file:
        return int.from_bytes(file.read(32)[24:], "big")  # the disk's size, see above


def _fits(size: int, origin: Origin) -> None:
    if origin.overlaid and size > origin.limit:
        raise DiskUnusable(
            f"disk {origin.name!r}: its image has a virtual size of {size} bytes, more than source.sizeLimit, which is {origin.limit}. "
            f"Set sizeLimit to {math.ceil(size / MIB)}Mi or more"
        )


def _direct(file: Path) -> bool:
    return _opens(file, os.O_RDONLY | os.O_DIRECT)


def _direct_below(directory: Path) -> bool:
    return _opens(directory, os.O_RDWR | os.O_DIRECT | os.O_TMPFILE)


def _opens(path: Path, flags: int) -> bool:
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True
