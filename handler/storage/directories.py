"""The directories in a pod where storage plugins put disks, and checks of what they put there.

virt-handler makes their emptyDir and each disk's directory root's before a plugin runs, as root. The pod can write only to a socket, or to
a file of its own user.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.hardware import plugin_disks
from apiserver.apis.virt.places import layout
from handler.pods import opening, places

MODE: Final = 0o755
_HERE: Final = opening.NO_SYMLINKS | 0x01
"""And RESOLVE_NO_XDEV: later mounts on this node are not visible in the pod."""


class NotThere(Exception):
    """The file that a plugin should have put into the pod is missing or wrong; the message says how."""


def path(pod_uid: str, kubelet: Path) -> Path:
    """Return the path of the pod's emptyDir for disks of plugins. Raises ValueError for an invalid uid."""
    if not places.is_uid(pod_uid):
        raise ValueError(f"{ascii(pod_uid)[:80]} is not a pod uid")
    return kubelet / "pods" / pod_uid / "volumes" / "kubernetes.io~empty-dir" / layout.PLUGIN_DISKS_VOLUME


@contextmanager
def opened(pod_uid: str, kubelet: Path) -> Iterator[int]:
    """Yield a descriptor of the pod's emptyDir for disks of plugins. Raises FileNotFoundError if the pod has none here."""
    with descriptors.closing(os.open(path(pod_uid, kubelet), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)) as descriptor:
        yield descriptor


def make(top: int, name: str) -> None:
    """Make root the owner of the emptyDir ``top``, and make a disk's directory in it, both writable only for root. Idempotent.

    Raises NotThere if something else, or another user's directory, is in its place.
    """
    os.fchown(top, 0, 0)
    os.fchmod(top, MODE)
    with suppress(FileExistsError):
        os.mkdir(name, MODE, dir_fd=top)
    try:
        descriptor = opening.openat2(top, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, resolve=_HERE)
    except OSError as error:
        raise NotThere(f"{name} in the pod's volume {layout.PLUGIN_DISKS_VOLUME} is not the directory of that disk") from error
    with descriptors.closing(descriptor):
        if os.fstat(descriptor).st_uid != 0:
            raise NotThere(f"the directory of disk {name} in the pod's volume {layout.PLUGIN_DISKS_VOLUME} does not belong to root")
        os.fchmod(descriptor, MODE)


def check_file(top: int, name: str, served: plugin_disks.Served, *, read_only: bool) -> None:
    """Check type and rights of the plugin's image or socket in the disk's directory ``name`` below ``top``, and an image's size.

    Raises NotThere.
    """
    is_socket = served.protocol == "nbd"
    file = plugin_disks.SOCKET if is_socket else plugin_disks.IMAGE
    found = _status(top, name, file)
    if stat.S_ISLNK(found.st_mode):
        raise NotThere(f"{file} is a symbolic link")
    if not (stat.S_ISSOCK if is_socket else stat.S_ISREG)(found.st_mode):
        raise NotThere(f"{file} is not a {'socket' if is_socket else 'regular file'}")
    wanted = stat.S_IWOTH if is_socket else stat.S_IROTH if read_only else stat.S_IROTH | stat.S_IWOTH
    if not _allows(found, wanted):
        raise NotThere(f"user {layout.USER_ID} may not {'connect to' if is_socket else 'open'} {file}")
    if not is_socket and found.st_size != served.size:
        raise NotThere(f"{file} has {found.st_size} bytes, but the plugin reported {served.size}")


def _status(top: int, name: str, file: str) -> os.stat_result:
    try:
        descriptor = opening.openat2(top, f"{name}/{file}", os.O_PATH | os.O_NOFOLLOW, resolve=_HERE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV, errno.ENOTDIR):
            raise NotThere(f"{file} contains a symbolic link or a mount point") from error
        raise NotThere(f"{file}: {error.strerror}") from error
    with descriptors.closing(descriptor):
        return os.fstat(descriptor)


def _allows(found: os.stat_result, wanted: int) -> bool:
    shift = 6 if found.st_uid == layout.USER_ID else 3 if found.st_gid == layout.USER_ID else 0
    return (found.st_mode >> shift) & wanted == wanted
