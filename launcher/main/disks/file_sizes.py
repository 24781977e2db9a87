"""Checks access to disk files before a start, and grows them to the size that QEMU and the machine need.

Only the pod with the guest grows files, by a hole at the end, so a migration's target finds them unchanged.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from apiserver.apis.meta import descriptors, quantity
from apiserver.apis.virt.places import layout
from launcher.domain.disk_origins import Origin, origins
from launcher.main.disks import files

_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ALIGNMENTS: Final = (1, 512, 1024, 2048, 4096)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_STAT_BLOCK: Final = 512


def _reads(descriptor: int, page: mmap.mmap, length: int) -> bool:
    with memoryview(page) as view, view[:length] as part:
        try:
            os.preadv(descriptor, [part], 0)
        except OSError:
            return False
    return True


def alignment(file: Path, reads: Callable[[int, mmap.mmap, int], bool] = _reads) -> int:
    """Return the unit in bytes in which O_DIRECT reads a file, found as QEMU does; 1 without O_DIRECT.

    For a hole, which any unit reads, QEMU uses the largest.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT | _FLAGS)
    except OSError:
        return 1
    with descriptors.closing(descriptor), mmap.mmap(-1, _ALIGNMENTS[-1]) as page:
        smallest = next((each for each in _ALIGNMENTS if reads(descriptor, page, each)), 1)
        return _ALIGNMENTS[-1] if smallest == 1 else smallest


def prepare(specification: Mapping[str, Any], unit_of: Callable[[Path], int] = alignment) -> None:
    """Check access to existing disk files of claims and nodes; grow written ones to O_DIRECT units and ``source.create.size``.

    Raises files.NoRoom if a claim has too little room, which may change; files.DiskUnusable if virt-launcher may not read, write or grow a
    file.
    """
    for origin in origins(specification):
        if not (origin.image or origin.network or origin.empty or origin.blank):
            _prepare(origin, Path(origin.path, layout.DISK_IMAGE), unit_of)


def size_of(specification: Mapping[str, Any]) -> int:
    """Return the bytes of the file or block device in the claim of the specification's only disk. Raises OSError, InvalidSpecification."""
    (origin,) = origins(specification)
    device = files.device_size(origin)
    return Path(origin.path, layout.DISK_IMAGE).stat().st_size if device is None else device


def _prepare(origin: Origin, path: Path, unit_of: Callable[[Path], int]) -> None:
    is_written = not (origin.read_only or origin.overlaid)
    try:
        file = os.open(path, _FLAGS | (os.O_RDWR if is_written else os.O_RDONLY))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise files.DiskUnusable(f"disk {origin.name!r}: {_refused(path, error)}") from error
        return
    with descriptors.closing(file):
        if is_written and stat.S_ISREG(os.fstat(file).st_mode):
            _grow(file, origin, unit_of(path))


def _grow(file: int, origin: Origin, unit: int) -> None:
    found = os.fstat(file)
    wanted = max(-(-found.st_size // unit) * unit, origin.created)
    if wanted <= found.st_size:
        return
    room = os.fstatvfs(file)
    lacking = wanted - found.st_blocks * _STAT_BLOCK - room.f_bavail * room.f_frsize
    if origin.created and room.f_blocks and lacking > 0:  # not every network file system reports it
        raise _no_room(origin, found.st_size)
    try:
        os.ftruncate(file, wanted)
        os.fsync(file)
    except OSError as error:
        if error.errno in _FULL:
            raise _no_room(origin, found.st_size) from error
        raise files.DiskUnusable(f"disk {origin.name!r}: {layout.DISK_IMAGE} cannot grow to {wanted} bytes: {error.strerror}") from error


def _no_room(origin: Origin, size: int) -> files.NoRoom:
    asked, has = quantity.of_bytes(origin.created), quantity.about(size)
    message = (
        f"disk {origin.name!r}: source.create.size is {asked}, its file has {has}, and its claim has no space to grow it: expand the "
        "PersistentVolumeClaim or free space in it; virt-handler tries again until the disk fits"
    )
    return files.NoRoom((origin.name,), message)


def _refused(path: Path, error: OSError) -> str:
    try:
        found = path.lstat()
    except OSError:
        return f"{path.name}: {error.strerror}"
    if error.errno == errno.EROFS:
        return f"{path.name}: its volume is read-only; set readOnly"
    owner = f"{path.name} belongs to uid {found.st_uid} and gid {found.st_gid} with mode {stat.S_IMODE(found.st_mode):04o}"
    return (
        f"{owner}, and virt-launcher is uid {os.geteuid()}: {error.strerror}; give that user, or the "
        "group of the claim, read and write permission"
    )
