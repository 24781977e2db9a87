"""Files with suspended guests' memory, in the machine's directory of the storage of ``spec.managedSave``.

``<id>`` is a complete image, ``<id>.partial`` is being written, ``<id>.used`` says that a guest was resumed from it, and ``<id>.disks`` has
the disks that were made in the pod. Other pods may write to the claim, so an image must have the digest in the machine's status
(docs/decisions/life-cycle.md).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import layout
from launcher.main.disks import firmware_state
from launcher.protocol.made_disks import MAX_LINE_BYTES

PARTIAL: Final = ".partial"
USED: Final = ".used"
DISKS: Final = ".disks"
_MAGIC: Final = b"LibvirtQemudSave"
_HEADER_BYTES: Final = 92
"""``qemu_saveimage.h``: the magic, the version, the bytes of XML and cookie that follow, and others."""
_LENGTH: Final = slice(20, 24)
_MACHINE: Final = re.compile(r"<type [^>]*machine='([A-Za-z0-9._-]{1,63})'")
MAX_XML_BYTES: Final = 4 << 20
SPARE_BYTES: Final = 128 << 20
"""Beyond the guest's memory: video memory, firmware and devices."""


class ImageUnusable(Exception):
    """An image of a guest's memory cannot be made or used; the message says why."""


class ImageUsed(ImageUnusable):
    """A guest was resumed from the image, and may have run since."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A complete image of a guest's memory."""

    digest: str
    size_bytes: int
    machine: str
    """QEMU's machine type; empty if the XML has none."""


@dataclass(frozen=True, slots=True)
class Places:
    """The directories of a pod for images of its guest's memory."""

    claim: Path
    node_disk: Path

    def of(self, *, on_node_disk: bool) -> Path:
        """Return the directory of the node's disk, or of the claim."""
        return self.node_disk if on_node_disk else self.claim

    def has(self, *, on_node_disk: bool) -> bool:
        """Return whether the pod has that storage."""
        return self.node_disk.is_mount() if on_node_disk else self.claim.is_dir()


PLACES: Final = Places(Path(layout.MANAGED_SAVE_DIRECTORY), Path(layout.RUN_DIRECTORY) / layout.NODE_DISK)


def make_room(uid: str, needed_bytes: int, root: Path, statvfs: Callable[[Path], os.statvfs_result] = os.statvfs) -> Path:
    """Delete the machine's images in any case; return their directory if it has room for a new one. Raises OSError.

    Raises:
        ImageUnusable: there is too little room, or the directory is another user's.
    """
    delete_others(uid, root)
    directory = _directory(uid, root)
    found = statvfs(directory)
    if (free := found.f_bavail * found.f_frsize) < needed_bytes + SPARE_BYTES:
        needed = f"the guest's memory and {SPARE_BYTES >> 20} MiB need {(needed_bytes + SPARE_BYTES) >> 20} MiB"
        raise ImageUnusable(f"the storage of spec.managedSave has {free >> 20} MiB free, and {needed}")
    return directory


def delete_others(uid: str, root: Path, keep: str = "") -> None:
    """Delete the machine's images below ``root``, except for ``keep``, its mark of use and its disks. Raises ImageUnusable or OSError."""
    if not root.is_dir():
        return
    directory = _directory(uid, root)
    for each in sorted(directory.iterdir()):
        if not keep or each.name not in (keep, f"{keep}{USED}", f"{keep}{DISKS}"):
            each.unlink()
    _sync(directory)


def seal(partial: Path, image: Path) -> Sealed:
    """Rename libvirt's finished file to ``image``, durably; return its header's digest, size and machine type.

    Raises ImageUnusable for a bad header, and OSError.
    """
    with descriptors.closing(open_own(partial)) as descriptor:
        os.fchmod(descriptor, 0o600)
        digest, xml = _header(descriptor, _list_of_disks(image))
        os.fsync(descriptor)
        size = os.fstat(descriptor).st_size
    partial.rename(image)
    _sync(image.parent)
    machine = _MACHINE.search(xml)
    return Sealed(digest, size, machine[1] if machine else "")


def checked(uid: str, image_id: str, digest: str, root: Path) -> tuple[Path, str]:
    """Return the image's path, and the domain's XML in it. Raises OSError.

    Raises:
        ImageUsed: a guest was resumed from it.
        ImageUnusable: it is missing, or was changed.
    """
    image = _directory(uid, root) / image_id
    if firmware_state.exists(image.with_suffix(USED)):
        raise ImageUsed(f"the guest was resumed from the image {image_id} before, and may have run since: its memory is lost")
    if not firmware_state.exists(image):
        without = "to boot without it: kubectl virt start --discard-state"
        raise ImageUnusable(f"the storage of spec.managedSave has no image {image_id}; {without}")
    with descriptors.closing(open_own(image)) as descriptor:
        os.fchmod(descriptor, 0o600)
        found, xml = _header(descriptor, _list_of_disks(image))
    if found != digest:
        raise ImageUnusable(
            f"the image {image_id} was changed: its header and disks have the digest {found}, and the machine's status {digest}"
        )
    return image, xml


def mark_used(image: Path) -> None:
    """Rename the image to its mark of use, durably, so no guest is resumed from it again."""
    image.rename(image.with_suffix(USED))
    _sync(image.parent)


def free(image: Path) -> None:
    """Delete the disks and the memory of an image that :func:`mark_used` marked; the mark stays."""
    image.with_suffix(DISKS).unlink(missing_ok=True)
    os.truncate(image.with_suffix(USED), 0)


def _directory(uid: str, root: Path) -> Path:
    directory = root / uid
    try:
        firmware_state.own_directory(directory)
    except firmware_state.StateUnusable as error:
        raise ImageUnusable(f"the storage of spec.managedSave: {error}") from error
    return directory


def open_own(path: Path) -> int:
    """Return a descriptor (read and write), which the caller closes, of a file that others may have replaced.

    Raises ImageUnusable if it is not this user's own file, and OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != os.geteuid():
        os.close(descriptor)
        raise ImageUnusable(f"{path.name}: is not a regular file with a single hard link and of this user")
    return descriptor


def _list_of_disks(image: Path) -> bytes:
    path = image.with_suffix(DISKS)
    if not firmware_state.exists(path):
        return b""
    with os.fdopen(open_own(path), "rb") as file:
        return file.readline(MAX_LINE_BYTES)


def _header(descriptor: int, listed: bytes = b"") -> tuple[str, str]:
    """Return a digest and the XML. The digest covers all before the memory, and ``listed``, the list of disks. Raises ImageUnusable."""
    header = os.pread(descriptor, _HEADER_BYTES, 0)
    length = int.from_bytes(header[_LENGTH], "little")
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC) or length > MAX_XML_BYTES:
        raise ImageUnusable("the image is not complete")
    data = os.pread(descriptor, length, _HEADER_BYTES)
    xml = data.partition(b"\0")[0]
    try:
        return hashlib.sha256(header + data + listed).hexdigest(), xml.decode()
    except UnicodeDecodeError as error:
        raise ImageUnusable("the image has no XML") from error


def _sync(directory: Path) -> None:
    with descriptors.closing(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        os.fsync(descriptor)
