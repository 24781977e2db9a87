"""Mounts claims of attachment pods in the pod of a running guest.

virt-handler moves a clone of the attachment pod's mount to the disk's directory in the guest's pod, without following links. Root owns the
directories' emptyDir from the first call on, so a launcher cannot replace a disk's directory between two system calls.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Protocol

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import layout
from handler.devices.ownership import NotTheDevice
from handler.pods import mounts, opening
from handler.pods.process import Launcher

_DIRECTORY: int = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
_ONLY_ROOT: int = 0o755


class Move(Protocol):
    """Mounts a clone of a source over a target."""

    def __call__(self, source: mounts.Place, target: mounts.Place, *, read_only: bool) -> None:
        """Mount a clone of ``source`` over ``target``. Raises OSError."""


def put(
    source: Launcher,
    target: Launcher,
    disk: str,
    *,
    read_only: bool,
    parent: str = layout.DISKS_DIRECTORY,
    content: str = layout.ATTACHMENT_DIRECTORY,
    move: Move = mounts.move,
) -> None:
    """Mount directory ``content`` of attachment pod ``source`` at the disk's directory below ``parent`` in the guest's pod. Idempotent.

    It replaces an unused mount, such as of a lost attachment pod. Raises OSError: EBUSY if that mount is in use; NotTheDevice if a path is
    no directory.
    """
    with _opened(source.root, content) as claim, _places(target, parent) as directory:
        with contextlib.suppress(FileExistsError):
            os.mkdir(disk, mode=0o755, dir_fd=directory)
        with _opened(directory, disk) as place:
            if os.path.samestat(os.fstat(claim), os.fstat(place)):
                return
            is_mounted = _is_mount(directory, place)
        if is_mounted:
            mounts.unmount(mounts.Place(target.pidfd, directory), disk)
        with _opened(directory, disk) as place:
            move(mounts.Place(source.pidfd, claim), mounts.Place(target.pidfd, place), read_only=read_only)


def remove(target: Launcher, disk: str, parent: str = layout.DISKS_DIRECTORY) -> None:
    """Unmount what :func:`put` or the kubelet mounted, and remove the directory. Idempotent.

    Then no process of the pod has the claim. Raises OSError EBUSY if QEMU still uses the disk.
    """
    with _places(target, parent) as directory:
        try:
            with _opened(directory, disk) as place:
                is_mounted = _is_mount(directory, place)
        except FileNotFoundError:
            return
        if is_mounted:
            mounts.unmount(mounts.Place(target.pidfd, directory), disk)
        os.rmdir(disk, dir_fd=directory)


@contextlib.contextmanager
def _places(target: Launcher, parent: str) -> Iterator[int]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with _opened(target.root, parent) as found, descriptors.closing(os.open(".", flags, dir_fd=found)) as directory:
        if os.fstat(directory).st_uid != 0:
            os.fchown(directory, 0, -1)
        os.fchmod(directory, _ONLY_ROOT)
        yield directory


@contextlib.contextmanager
def _opened(directory: int, path: str) -> Iterator[int]:
    try:
        found = opening.openat2(directory, path.lstrip("/"), _DIRECTORY, resolve=opening.NO_SYMLINKS)
    except NotADirectoryError as error:
        raise NotTheDevice(f"{path} in the pod is not a directory") from error
    with descriptors.closing(found):
        yield found


def _is_mount(directory: int, place: int) -> bool:
    return os.fstat(directory).st_dev != os.fstat(place).st_dev
