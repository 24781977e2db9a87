"""Creates blank disks in claims that have none: ``source.create`` (docs/decisions/disks.md).

Creation makes ``disk.img.new``, locks it, sets its size, syncs it and links it to ``disk.img``; the link fails if that exists. A file
without a lock is left over, and is removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from apiserver.apis.meta import descriptors, quantity
from apiserver.apis.virt.places import layout
from launcher.domain.disk_origins import Origin, origins
from launcher.main.disks import files

PARTIAL: Final = f"{layout.DISK_IMAGE}.new"
MODE: Final = 0o660
"""The group is the pod's ``fsGroup``, so the next pod can write to it."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def create(
    specification: Mapping[str, Any],
    device_size: Callable[[Origin], int | None] = files.device_size,
    file_system: Callable[[int], os.statvfs_result] = os.fstatvfs,
) -> None:
    """Create the missing disks that have ``source.create``, and check the size of their block devices.

    Raises files.NoRoom if a claim has too little room, which may change; files.ImagesMissing if another pod is creating the disk;
    files.DiskUnusable if the file system cannot hold such a file; InvalidSpecification.
    """
    full: dict[str, str] = {}
    for origin in origins(specification):
        if not origin.created:
            continue
        try:
            _create(origin, device_size, file_system)
        except files.NoRoom as error:
            full[origin.name] = str(error)
    if full:
        raise files.NoRoom(tuple(full), "; ".join(full.values()))


def _create(origin: Origin, device_size: Callable[[Origin], int | None], file_system: Callable[[int], os.statvfs_result]) -> None:
    try:
        if (size := device_size(origin)) is not None:
            _require(size, origin, "its block device has")
            return
        with _directory(origin) as directory:
            if not _exists(layout.DISK_IMAGE, directory):
                _create_in(directory, origin, file_system(directory))
    except OSError as error:
        if error.errno in _FULL:
            raise _no_room(origin, "the claim is full") from error
        raise files.DiskUnusable(f"disk {origin.name!r}: cannot create it in its claim: {_words(error)}") from error


def _create_in(directory: int, origin: Origin, room: os.statvfs_result) -> None:
    if room.f_blocks:  # not every network file system reports it
        _require(room.f_bavail * room.f_frsize, origin, "the storage of its claim has free space for")
    with _partial(directory, origin) as file:
        os.ftruncate(file, origin.created)
        os.fsync(file)
        with suppress(FileExistsError):  # another process created it first
            os.link(PARTIAL, layout.DISK_IMAGE, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    os.fsync(directory)


@contextmanager
def _partial(directory: int, origin: Origin) -> Iterator[int]:
    """Yield a new locked file next to the disk, and remove its name afterwards; raise ImagesMissing if another pod has it."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(FileNotFoundError), descriptors.closing(os.open(PARTIAL, flags, dir_fd=directory)) as left:
        _lock(left, origin)
        _remove(left, directory)
    try:
        file = os.open(PARTIAL, flags | os.O_CREAT | os.O_EXCL, MODE, dir_fd=directory)
    except FileExistsError:
        raise files.ImagesMissing((origin.name,)) from None
    with descriptors.closing(file):
        _lock(file, origin)
        try:
            yield file
        finally:
            os.unlink(PARTIAL, dir_fd=directory)


def _lock(file: int, origin: Origin) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise files.ImagesMissing((origin.name,)) from None


def _remove(file: int, directory: int) -> None:
    named = os.stat(PARTIAL, dir_fd=directory, follow_symlinks=False)
    if os.path.samestat(named, os.fstat(file)):
        os.unlink(PARTIAL, dir_fd=directory)


@contextmanager
def _directory(origin: Origin) -> Iterator[int]:
    with descriptors.closing(os.open(origin.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as directory:
        yield directory


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _require(bytes_: int, origin: Origin, holder: str) -> None:
    if bytes_ < origin.created:
        raise _no_room(origin, f"{holder} {quantity.about(bytes_)}")


def _no_room(origin: Origin, why: str) -> files.NoRoom:
    message = (
        f"disk {origin.name!r}: source.create.size is {quantity.of_bytes(origin.created)}, and {why}: expand the PersistentVolumeClaim, "
        "free space in it, or reduce source.create.size and restart the virtual machine; virt-handler tries again until the disk fits"
    )
    return files.NoRoom((origin.name,), message)


def _words(error: OSError) -> str:
    match error.errno:
        case errno.EFBIG:
            return "its file system does not support files of that size"
        case errno.EPERM | errno.EOPNOTSUPP | errno.ENOLCK:
            return f"its file system does not support links or locks ({error.strerror}); create {layout.DISK_IMAGE} yourself"
        case errno.EACCES:
            user, group = os.geteuid(), os.getegid()
            cure = f"where the storage ignores fsGroup, as hostPath and NFS do: chown {user}:{group}"
            return f"{error.strerror}: user {user}, group {group} cannot write to the claim's directory; {cure}"
        case _:
            return str(error.strerror or error)
