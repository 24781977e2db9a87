"""Gives block claims of attachment pods to the pod of a running guest, and takes them back.

Root owns ``/dev`` in both pods. No call takes an open device from a process: :func:`remove` looks for it in the pod's processes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import layout
from handler.devices import device_cgroup, ownership
from handler.devices.ownership import NotTheDevice
from handler.pods import opening
from handler.pods.process import Launcher, in_pod

_PATH: Final = os.O_PATH | os.O_NOFOLLOW
_PROC: Final = Path("/proc")


def put(source: Launcher, target: Launcher, pod_uid: str, disk: str, *, read_only: bool) -> bool:
    """Give the block device of attachment pod ``source`` to the guest's pod ``target``; return False if the claim is a file system.

    Idempotent. The device of an earlier attachment pod is removed. Raises NotTheDevice if another file is there, or the node has version 2
    of the device cgroup; or OSError: EBUSY while a process of the pod has the earlier device open.
    """
    if (number := _number(source.root, layout.ATTACHMENT_DEVICE)) is None:
        return False
    node = ownership.disk(disk, read_only=read_only)
    if _number(target.root, node.path) not in (None, number):
        remove(target, pod_uid, disk)
    with _directory(target) as directory, contextlib.suppress(FileExistsError):
        os.mknod(disk, stat.S_IFBLK, number, dir_fd=directory)
    if _number(target.root, node.path) != number:
        raise NotTheDevice(f"disk {disk!r}: another file is in the pod")
    device_cgroup.allow(target, number, read_only=read_only)
    ownership.give(target.root, node)
    return True


def remove(target: Launcher, pod_uid: str, disk: str, proc: Path = _PROC) -> None:
    """Take a disk's block device, of the kubelet or :func:`put`, from the guest's pod. Idempotent.

    Raises OSError: EBUSY while a process of the pod has it open; the pod can already open it no more.
    """
    try:
        node = opening.openat2(target.root, _relative(ownership.disk(disk).path), _PATH, resolve=opening.NO_SYMLINKS)
    except FileNotFoundError:
        return
    with descriptors.closing(node):
        found, handle = os.fstat(node), f"/proc/self/fd/{node}"
        if not stat.S_ISBLK(found.st_mode):
            return
        os.chown(handle, 0, 0)
        os.chmod(handle, 0)  # noqa: PTH101 - of a descriptor
    device_cgroup.deny(target, found.st_rdev)
    if user := next(_users(pod_uid, found, proc), 0):
        raise OSError(errno.EBUSY, f"process {user} of the guest's pod has the block device of disk {disk!r} open")
    with _directory(target) as directory:
        os.unlink(disk, dir_fd=directory)


def _number(root: int, path: str) -> int | None:
    try:
        found = opening.openat2(root, _relative(path), _PATH, resolve=opening.NO_SYMLINKS)
    except FileNotFoundError:
        return None
    with descriptors.closing(found):
        status = os.fstat(found)
    return status.st_rdev if stat.S_ISBLK(status.st_mode) else None


def _relative(path: str) -> str:
    return path.lstrip("/")


@contextlib.contextmanager
def _directory(target: Launcher) -> Iterator[int]:
    top, name = os.path.split(_relative(layout.DEVICES_DIRECTORY))
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
    with descriptors.closing(opening.openat2(target.root, top, flags, resolve=opening.NO_SYMLINKS)) as parent:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, mode=0o755, dir_fd=parent)
        with descriptors.closing(opening.openat2(parent, name, flags, resolve=opening.NO_SYMLINKS)) as directory:
            yield directory


def _users(pod_uid: str, node: os.stat_result, proc: Path) -> Iterator[int]:
    for process in proc.iterdir():
        if process.name.isdecimal() and in_pod(_text(process / "cgroup"), pod_uid) and _uses(process, node):
            yield int(process.name)


def _uses(process: Path, node: os.stat_result) -> bool:
    threads = _entries(process / "task")  # a thread may have descriptors of its own
    if any(_is_device(each, node.st_rdev) for thread in threads for each in _entries(thread / "fd")):
        return True
    return f" {os.major(node.st_dev):02x}:{os.minor(node.st_dev):02x} {node.st_ino} " in _text(process / "maps")


def _is_device(descriptor: Path, number: int) -> bool:
    with _while_it_exists():
        found = descriptor.stat()
        return stat.S_ISBLK(found.st_mode) and found.st_rdev == number
    return False


def _entries(directory: Path) -> list[Path]:
    with _while_it_exists():
        return list(directory.iterdir())
    return []


def _text(file: Path) -> str:
    with _while_it_exists():
        return file.read_text(errors="replace")
    return ""


def _while_it_exists() -> contextlib.suppress:
    """Suppress the errors of a process, thread or descriptor that has ended. The others may still have the device."""
    return contextlib.suppress(FileNotFoundError, ProcessLookupError)
