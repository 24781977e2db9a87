"""The directories in a pod into which storage plugins put disks, and what they put there.

They are below an emptyDir of the pod, which the kubelet makes for everybody to write to. virt-handler makes it root's before a plugin is
asked, and the directory of each disk in it: a pod that its guest has taken over can neither replace what a plugin put there, nor lead a
plugin, which is root, elsewhere. Only a socket, or a file of the pod's user, is the pod's to write to.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from apiserver.apis.virt.hardware import plugin_disks
from apiserver.apis.virt.places import layout
from handler.pods import opening, places

MODE: Final = 0o755
_HERE: Final = opening.NO_SYMLINKS | 0x01
"""And RESOLVE_NO_XDEV: what is mounted on this node later is not mounted in the pod."""


class NotThere(Exception):
    """The file that a plugin says it put into the pod is not there, or something else is; the message says what."""


def path(pod_uid: str, kubelet: Path) -> Path:
    """Return the emptyDir.

    Raises:
        ValueError: no pod can have this uid.
    """
    if not places.is_uid(pod_uid):
        raise ValueError(f"{ascii(pod_uid)[:80]} is no uid of a pod")
    return kubelet / "pods" / pod_uid / "volumes" / "kubernetes.io~empty-dir" / layout.PLUGIN_DISKS_VOLUME


@contextmanager
def opened(pod_uid: str, kubelet: Path) -> Iterator[int]:
    """Yield a descriptor of the emptyDir.

    Raises:
        FileNotFoundError: the pod has none on this node (any more).
    """
    descriptor = os.open(path(pod_uid, kubelet), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make(top: int, name: str) -> None:
    """Make the directory of a disk, root's as the emptyDir itself; harmless when it is done again.

    Raises:
        NotThere: something else is in its place.
    """
    os.fchown(top, 0, 0)
    os.fchmod(top, MODE)
    with suppress(FileExistsError):
        os.mkdir(name, MODE, dir_fd=top)
    try:
        descriptor = opening.openat2(top, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, resolve=_HERE)
    except OSError as error:
        raise NotThere(f"{name} in the pod's volume {layout.PLUGIN_DISKS_VOLUME} is not the directory of that disk") from error
    try:
        if os.fstat(descriptor).st_uid != 0:
            raise NotThere(f"the directory of disk {name} in the pod's volume {layout.PLUGIN_DISKS_VOLUME} is not root's")
        os.fchmod(descriptor, MODE)
    finally:
        os.close(descriptor)


def look(top: int, name: str, served: plugin_disks.Served, *, read_only: bool) -> None:
    """Return if what a plugin says it put into the directory of a disk is there, and the pod's user may use it.

    Raises:
        NotThere: it is not.
    """
    is_socket = served.protocol == "nbd"
    file = plugin_disks.SOCKET if is_socket else plugin_disks.IMAGE
    found = _status(top, name, file)
    if stat.S_ISLNK(found.st_mode):
        raise NotThere(f"{file} is a link")
    if not (stat.S_ISSOCK if is_socket else stat.S_ISREG)(found.st_mode):
        raise NotThere(f"{file} is no {'socket' if is_socket else 'regular file'}")
    wanted = stat.S_IWOTH if is_socket else stat.S_IROTH if read_only else stat.S_IROTH | stat.S_IWOTH
    if not _allows(found, wanted):
        raise NotThere(f"user {layout.USER_ID} may not {'connect to' if is_socket else 'open'} {file}")
    if not is_socket and found.st_size != served.size:
        raise NotThere(f"{file} has {found.st_size} bytes, and {served.size} were said")


def _status(top: int, name: str, file: str) -> os.stat_result:
    try:
        descriptor = opening.openat2(top, f"{name}/{file}", os.O_PATH | os.O_NOFOLLOW, resolve=_HERE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV, errno.ENOTDIR):
            raise NotThere(f"{file} is reached through a link or a mount") from error
        raise NotThere(f"{file}: {error.strerror}") from error
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _allows(found: os.stat_result, wanted: int) -> bool:
    """Return whether user and group of the pod have the rights ``wanted``, which are given as those of others."""
    shift = 6 if found.st_uid == layout.USER_ID else 3 if found.st_gid == layout.USER_ID else 0
    return (found.st_mode >> shift) & wanted == wanted
