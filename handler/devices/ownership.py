"""Give a pod's device nodes to the pod's user, before the domain starts.

The runtime makes them root's with mode 0600, regardless of ``fsGroup``.

A pod could replace a node. So the path is resolved inside the pod's root without links, and only a device of the expected kind and number
is changed, by an O_PATH descriptor, because a full open can have effects. ``fchmod`` refuses such descriptors, so chmod uses
``/proc/self/fd``.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import layout
from handler.pods import opening

MODE: Final = 0o660
READ_ONLY_MODE: Final = 0o440
"""The node remains root's, because an owner could change the mode."""


class NotTheDevice(Exception):
    """The file at the path is not the expected device."""


@dataclass(frozen=True, slots=True)
class Node:
    """A device node to give away: its path in the pod, and its identity."""

    path: str
    kind: str
    """``char`` or ``block``."""
    number: tuple[int, int] | None = None
    """(major, minor); None for any number (a claim's block device)."""
    required: bool = True
    read_only: bool = False


TUN: Final = Node("/dev/net/tun", "char", (10, 200), required=False)
KVM: Final = Node("/dev/kvm", "char", (10, 232), required=False)
VHOST_VSOCK: Final = Node("/dev/vhost-vsock", "char", (10, 241), required=False)


def disk(name: str, *, read_only: bool = False) -> Node:
    """Return the Node of a claim's block device in the pod, not required, because only claims with ``volumeMode: Block`` have it."""
    return Node(f"{layout.DEVICES_DIRECTORY}/{name}", "block", required=False, read_only=read_only)


def give(root: int, node: Node, user: int = layout.USER_ID) -> bool:
    """Give ``node`` to ``user`` and its group, a read-only one only to the group; return whether the pod has the device.

    ``root`` is a descriptor of the pod's root directory. A missing path or a directory (a claim with a file system) is left alone unless
    the node is required. Raises NotTheDevice if something else is there, such as a link; or OSError.
    """
    try:
        descriptor = opening.openat2(root, node.path.lstrip("/"), os.O_PATH | os.O_NOFOLLOW, resolve=opening.NO_SYMLINKS)
    except FileNotFoundError:
        if node.required:
            raise
        return False
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV, errno.ENOTDIR):
            raise NotTheDevice(f"{node.path} in the pod contains a symbolic link") from error
        raise
    with descriptors.closing(descriptor):
        return _give(descriptor, node, user)


def exists(root: int, node: Node) -> bool:
    """Return whether any file is at the path of ``node`` below descriptor ``root``: also a link, but none behind a link."""
    try:
        os.close(opening.openat2(root, node.path.lstrip("/"), os.O_PATH | os.O_NOFOLLOW, resolve=opening.NO_SYMLINKS))
    except OSError:
        return False
    return True


def _give(descriptor: int, node: Node, user: int) -> bool:
    found = os.fstat(descriptor)
    if stat.S_ISDIR(found.st_mode) and not node.required:
        return False
    is_kind = stat.S_ISCHR(found.st_mode) if node.kind == "char" else stat.S_ISBLK(found.st_mode)
    number = os.major(found.st_rdev), os.minor(found.st_rdev)
    if not is_kind or node.number not in (None, number):
        wanted = f"{node.kind} device" + (f" {node.number[0]}:{node.number[1]}" if node.number else "")
        raise NotTheDevice(f"{node.path} in the pod is not a {wanted}")
    owner, mode = (0, READ_ONLY_MODE) if node.read_only else (user, MODE)
    if (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (owner, user, mode):
        return True
    handle = f"/proc/self/fd/{descriptor}"
    os.chown(handle, owner, user)
    os.chmod(handle, mode)  # noqa: PTH101 - of a descriptor
    return True
