"""Mounts files of the node in pods, as disks.

virt-handler opens the file below an allowed directory, without following links, and moves a mount of it to the disk's path in the pod.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.hardware import disks, host_disks
from apiserver.apis.virt.places import layout
from handler.devices.ownership import NotTheDevice
from handler.pods import mounts, opening

MODE: Final = 0o600
NODE: Final = Path("/proc/1")
_turns: Final[weakref.WeakValueDictionary[tuple[int, int], threading.Lock]] = weakref.WeakValueDictionary()
"""Locks by a directory's device and inode, held while its files are counted and one is made."""
_turns_change: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Allowed:
    """Files of this node that the administrator allows; ``created_bytes`` limits a directory's files, at full size, when one is made."""

    directories: tuple[str, ...] = ()
    """Prefixes of paths."""
    created_bytes: int = 0


@dataclass(frozen=True, slots=True)
class File:
    """A file of the node for a disk; made if missing and ``size`` is not 0, if its directory then has at most ``limit`` bytes."""

    disk: str
    path: str
    read_only: bool
    size: int = 0
    """Bytes of a missing file that is made; 0: the file must exist."""
    limit: int = 0


def files(domain: Mapping[str, Any], allowed: Allowed, namespace: str) -> tuple[File, ...]:
    """Return a File for each disk of a machine that is a node's file. Raises NotTheDevice if one is not below an allowed prefix."""
    found = []
    for each in disks.defaulted(domain):
        if not host_disks.is_host(each):
            continue
        path = host_disks.path_of(each)
        if not host_disks.is_below(path, allowed.directories, namespace):
            raise NotTheDevice(
                f"disk {each['name']!r}: {path} is not below a directory that virt-handler of this node allows (--host-disks)"
            )
        size = 0 if each["readOnly"] else disks.created_bytes(each)
        found.append(File(str(each["name"]), path, bool(each["readOnly"]), size, allowed.created_bytes))
    return tuple(found)


def put(root: int, process: int, file: File, node: Path = NODE) -> None:
    """Mount the file over the disk's image in the pod, given by a descriptor of its root and a pidfd. Idempotent.

    Make the file first if it is missing and has a size. ``node``: directory in ``/proc`` of a process of the node. Raises NotTheDevice if
    the file cannot be a disk, or the pod put something else in its place; or OSError.
    """
    with descriptors.closing(_open(file, node)) as source, descriptors.closing(_target(root, file.disk)) as target:
        if not stat.S_ISREG(os.fstat(target).st_mode):
            raise NotTheDevice(f"disk {file.disk!r}: another file is at the path of its image in the pod")
        if not os.path.samestat(os.fstat(source), os.fstat(target)):
            _mount(source, target, process, node, read_only=file.read_only)


def _open(file: File, node: Path) -> int:
    top = os.open(node / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path = file.path.lstrip("/")
        try:
            found = _find(top, path)
        except FileNotFoundError:
            if not file.size:
                raise
            _make(top, path, file)
            found = _find(top, path)
    except OSError as error:
        linked = error.errno in (errno.ELOOP, errno.EXDEV)
        why = "contains a symbolic link: use the path without links" if linked else f"cannot be used: {error.strerror}"
        raise NotTheDevice(f"disk {file.disk!r}: {file.path} of this node {why}") from error
    finally:
        os.close(top)
    if why := _unfit(os.fstat(found), read_only=file.read_only):
        os.close(found)
        raise NotTheDevice(f"disk {file.disk!r}: {file.path} of this node {why}")
    return found


def _unfit(status: os.stat_result, *, read_only: bool) -> str:
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        return "is not a regular file with a single hard link"
    user = layout.USER_ID
    shift = 6 if status.st_uid == user else 3 if status.st_gid == user else 0
    wanted = 0o4 if read_only else 0o6
    if (status.st_mode >> shift) & wanted == wanted:
        return ""
    what, mode = "read" if read_only else "read and write", stat.S_IMODE(status.st_mode)
    return f"belongs to {status.st_uid}:{status.st_gid}, mode {mode:04o}: virt-launcher's user {user} may not {what} it"


def _find(top: int, path: str) -> int:
    return opening.openat2(top, path, os.O_PATH | os.O_NOFOLLOW, resolve=opening.NO_SYMLINKS)


def _make(top: int, path: str, file: File) -> None:
    parent, _, name = path.rpartition("/")
    found = opening.openat2(top, parent, os.O_RDONLY | os.O_DIRECTORY, resolve=opening.NO_SYMLINKS)
    with descriptors.closing(found) as directory, locked(directory):
        if (there := _bytes_of(directory)) + file.size > file.limit:
            text = f"the files of its directory have {there} bytes, and the limit is {file.limit} (--host-disks-max-created)"
            raise NotTheDevice(f"disk {file.disk!r}: {file.path} of this node cannot be created: {text}")
        _make_in(directory, name, file.size)


@contextlib.contextmanager
def locked(directory: int) -> Iterator[None]:
    """Hold this process' lock of a directory, given by a descriptor, for counting and making files in it."""
    found = os.fstat(directory)
    with _turns_change:
        turn = _turns.setdefault((found.st_dev, found.st_ino), threading.Lock())
    with turn:
        yield


def _bytes_of(directory: int) -> int:
    with os.scandir(directory) as found:
        seen = [each.stat(follow_symlinks=False) for each in found]
    return sum(each.st_size for each in seen if stat.S_ISREG(each.st_mode) and each.st_uid == layout.USER_ID)


def _make_in(directory: int, name: str, size: int) -> None:
    with descriptors.closing(os.open(f"/proc/self/fd/{directory}", os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, MODE)) as made:
        os.ftruncate(made, size)
        os.fchown(made, layout.USER_ID, layout.USER_ID)
        os.fsync(made)
        with contextlib.suppress(FileExistsError):  # another machine's start made it meanwhile
            os.link(f"/proc/self/fd/{made}", name, dst_dir_fd=directory, follow_symlinks=True)


def _target(root: int, disk: str) -> int:
    path = f"{layout.DISKS_DIRECTORY}/{disk}/{layout.DISK_IMAGE}".lstrip("/")
    try:
        return opening.openat2(root, path, os.O_PATH | os.O_NOFOLLOW, resolve=opening.NO_SYMLINKS)
    except FileNotFoundError:
        os.close(opening.openat2(root, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, resolve=opening.NO_SYMLINKS, mode=MODE))
    return opening.openat2(root, path, os.O_PATH | os.O_NOFOLLOW, resolve=opening.NO_SYMLINKS)


def _mount(source: int, target: int, process: int, node: Path, *, read_only: bool) -> None:
    with descriptors.closing(os.open(node / "ns/mnt", os.O_RDONLY | os.O_CLOEXEC)) as space:
        mounts.move(mounts.Place(space, source), mounts.Place(process, target), read_only=read_only)
