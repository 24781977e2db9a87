"""A pod's run directory on this node: the kubelet's directory of the emptyDir volume ``layout.RUN_VOLUME``."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import forms, layout
from handler.pods import opening

KUBELET_DIRECTORY: Final = Path("/var/lib/kubelet")
_UCRED: Final = struct.Struct("iII")


def is_uid(text: object) -> bool:
    """Return whether this can be a pod's uid, and so one path component."""
    return isinstance(text, str) and not forms.uid_errors(text)


@contextmanager
def run_directory(pod_uid: str, kubelet: Path = KUBELET_DIRECTORY) -> Iterator[int]:
    """Yield an O_PATH descriptor of the pod's run directory; its path is trusted, but its content is not.

    Raises FileNotFoundError if the pod has no such volume on this node (any more), or ValueError for an invalid uid.
    """
    if not is_uid(pod_uid):
        raise ValueError(f"{ascii(pod_uid)[:80]} is not a pod uid")
    path = kubelet / "pods" / pod_uid / "volumes" / "kubernetes.io~empty-dir" / layout.RUN_VOLUME
    with descriptors.closing(opening.open_directory(str(path))) as descriptor:
        yield descriptor


def has_volumes(pod_uid: str, kubelet: Path = KUBELET_DIRECTORY) -> bool:
    """Return whether a launcher's or attachment pod's run volume is on this node. The kubelet removes it after all containers ended."""
    return (kubelet / "pods" / pod_uid / "volumes" / "kubernetes.io~empty-dir" / layout.RUN_VOLUME).is_dir()


def connect(directory: int, name: str) -> socket.socket:
    """Return a non-blocking connection to the unix socket ``name`` below a run directory.

    Raises OSError, also for links; BlockingIOError if the backlog is full.
    """
    with descriptors.closing(opening.open_socket(directory, name)) as target:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        with descriptors.on_error(connection.close):
            connection.connect(f"/proc/self/fd/{target}")
        return connection


def has_socket(directory: int, name: str) -> bool:
    """Return whether the unix socket ``name`` exists below a run directory."""
    try:
        os.close(opening.open_socket(directory, name))
    except OSError:
        return False
    return True


def peer_process(connection: socket.socket) -> int:
    """Return the id of the process that listens at the other end (SO_PEERCRED), in our pid namespace."""
    pid, _, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(pid)
