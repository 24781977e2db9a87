"""Moves mounts between mount namespaces, mounts devices, and unmounts: ``open_tree(2)``, ``move_mount(2)``, ``fsmount(2)``, ``umount2(2)``.

A temporary thread makes these calls in a namespace of its own. It resolves no path of a pod except one name in an open directory, without
following links.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from apiserver.apis.meta import descriptors
from handler.pods import detached

_libc: Final = ctypes.CDLL(None, use_errno=True)
_CLONE_FS: Final = 0x200
_CLONE_NEWNS: Final = 0x20000
_AT_EMPTY_PATH: Final = 0x1000
_SYS_OPEN_TREE: Final = 428
_OPEN_TREE_CLONE: Final = 1
_SYS_MOVE_MOUNT: Final = 429
_MOVE_MOUNT_EMPTY_PATHS: Final = 0x4 | 0x40
"""MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH: both ends are descriptors."""
_SYS_MOUNT_SETATTR: Final = 442
_RDONLY: Final = 1
_NOSUID_NODEV_NOEXEC: Final = 2 | 4 | 8
_PRIVATE: Final = 1 << 18
_UMOUNT_NOFOLLOW: Final = 8


class _Attributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace"))


class Place(NamedTuple):
    """A file or directory in a mount namespace."""

    space: int
    """A descriptor of the mount namespace, or the pidfd of a process there."""
    path: int
    """An O_PATH descriptor."""


def move(source: Place, target: Place, *, read_only: bool) -> None:
    """Mount a clone of the source over the target, without set-user-ID bits, devices and programs. Raises OSError."""
    attributes = _Attributes(_NOSUID_NODEV_NOEXEC | (_RDONLY if read_only else 0), 0, _PRIVATE, 0)
    _in_thread(lambda: _move(source, target, attributes), "mount into a pod")


def mount_device(device: str, target: Place) -> None:
    """Mount a block device's ext4 file system over the target, without set-user-ID bits, devices and programs. Raises OSError."""
    _in_thread(lambda: _mount(os.fsencode(device), target), "mount a device into a pod")


def unmount(directory: Place, name: str) -> None:
    """Unmount what is mounted at ``name``, one path component, in the directory.

    Raises OSError: EBUSY if a process uses it, EINVAL if it is not a mount; ValueError for another kind of name.
    """
    encoded = os.fsencode(name)
    if b"/" in encoded or name in {"", ".", ".."}:
        raise ValueError(f"{name!a} is not a name in a directory")
    _in_thread(lambda: _unmount(directory, encoded), "unmount in a pod")


def _in_thread(calls: Callable[[], bool], doing: str) -> None:
    failed: list[int] = []

    def run() -> None:
        # the thread gets its own root and working directory
        try:
            if _libc.unshare(_CLONE_FS) < 0 or not calls():
                failed.append(ctypes.get_errno())
        except OSError as error:
            failed.append(error.errno or errno.EIO)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise OSError(failed[0], os.strerror(failed[0]), doing)


def _move(source: Place, target: Place, attributes: _Attributes) -> bool:
    """Mount a clone of ``source`` over ``target``; return whether all calls succeeded, else errno has the error."""
    if _libc.setns(source.space, _CLONE_NEWNS) < 0:
        return False
    tree = _libc.syscall(_SYS_OPEN_TREE, source.path, b"", _AT_EMPTY_PATH | _OPEN_TREE_CLONE | os.O_CLOEXEC)
    if tree < 0:
        return False
    with descriptors.closing(tree):
        set_, size = ctypes.byref(attributes), ctypes.sizeof(attributes)
        if _libc.syscall(_SYS_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, set_, size) < 0 or _libc.setns(target.space, _CLONE_NEWNS) < 0:
            return False
        return int(_libc.syscall(_SYS_MOVE_MOUNT, tree, b"", target.path, b"", _MOVE_MOUNT_EMPTY_PATHS)) == 0


def _mount(device: bytes, target: Place) -> bool:
    with detached.mount(b"ext4", b"source", device, attributes=_NOSUID_NODEV_NOEXEC) as tree:
        if _libc.setns(target.space, _CLONE_NEWNS) < 0:
            return False
        return int(_libc.syscall(_SYS_MOVE_MOUNT, tree, b"", target.path, b"", _MOVE_MOUNT_EMPTY_PATHS)) == 0


def _unmount(directory: Place, name: bytes) -> bool:
    entered = _libc.setns(directory.space, _CLONE_NEWNS) == 0 and _libc.fchdir(directory.path) == 0
    return entered and int(_libc.umount2(name, _UMOUNT_NOFOLLOW)) == 0
