"""Allows block devices to this node's containers, by version 1 of the device cgroup.

The kernel's ``Documentation/admin-guide/cgroup-v1/devices.rst`` has its rules. With version 2 a BPF program of the runtime decides.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from handler.devices.ownership import NotTheDevice
from handler.pods import detached
from handler.pods.process import Launcher

_CONTROLLER: Final = "devices"


def allow(process: Launcher, number: int, *, read_only: bool) -> None:
    """Let the container of this process open the block device with this ``st_rdev``.

    Raises NotTheDevice where the node has version 2 of the device cgroup, or OSError.
    """
    if (path := _path(process)) is None:
        raise NotTheDevice("a running pod gets a block device only where the node has version 1 of the device cgroup")
    _write(path, "devices.allow", f"b {_text(number)} {'r' if read_only else 'rw'}")


def deny(process: Launcher, number: int) -> None:
    """Forbid this process's container to open the block device with this ``st_rdev``. Raises OSError.

    No effect where the node has version 2 of the device cgroup.
    """
    if (path := _path(process)) is not None:
        _write(path, "devices.deny", f"b {_text(number)} rwm")


def _path(process: Launcher) -> str | None:
    """Return the process's path in the hierarchy of version 1, or None. Raises ProcessLookupError or FileNotFoundError if it has ended."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()]
    if process.has_ended:  # the path is then "/", or that of another process: the rule would hold for the whole node
        raise ProcessLookupError(errno.ESRCH, f"process {process.pid} of the pod has ended")
    return next((path for _, controllers, path in lines if _CONTROLLER in controllers.split(",")), None)


def _text(number: int) -> str:
    return f"{os.major(number)}:{os.minor(number)}"


def _write(path: str, name: str, rule: str) -> None:
    # a container sees only its own part of the hierarchy at /sys/fs/cgroup
    with (
        detached.mount(b"cgroup", _CONTROLLER.encode()) as top,
        descriptors.closing(os.open(f"{path.strip('/')}/{name}".lstrip("/"), os.O_WRONLY | os.O_CLOEXEC, dir_fd=top)) as file,
    ):
        os.write(file, rule.encode())
