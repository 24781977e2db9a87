"""Allows block devices to this node's containers, by version 1 of the device cgroup.

See the kernel's ``Documentation/admin-guide/cgroup-v1/devices.rst``. With version 2 a BPF program decides, which belongs to the runtime.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from handler.devices.ownership import NotTheDevice
from handler.pods.process import Launcher

_libc: Final = ctypes.CDLL(None, use_errno=True)
_SYS_FSOPEN: Final = 430
_SYS_FSCONFIG: Final = 431
_SYS_FSMOUNT: Final = 432
_CLOSE_ON_EXEC: Final = 1
_SET_FLAG: Final = 0
_CREATE: Final = 6
_CONTROLLER: Final = "devices"


def allow(process: Launcher, number: int, *, read_only: bool) -> None:
    """Let the container of this process open the block device with this ``st_rdev``. Raises NotTheDevice with version 2, or OSError."""
    if (path := _path(process)) is None:
        raise NotTheDevice("a running pod gets a block device only where the node has version 1 of the device cgroup")
    _write(path, "devices.allow", f"b {_text(number)} {'r' if read_only else 'rw'}")


def deny(process: Launcher, number: int) -> None:
    """Let this process's container open the block device with this ``st_rdev`` no more; no effect with version 2. Raises OSError."""
    if (path := _path(process)) is not None:
        _write(path, "devices.deny", f"b {_text(number)} rwm")


def _path(process: Launcher) -> str | None:
    """Return the process's path in the hierarchy of version 1, or None. Raises ProcessLookupError if it has ended."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()]
    if process.has_ended:  # the path is then "/", or that of another process: the rule would hold for the whole node
        raise ProcessLookupError(errno.ESRCH, f"process {process.pid} of the pod has ended")
    return next((path for _, controllers, path in lines if _CONTROLLER in controllers.split(",")), None)


def _text(number: int) -> str:
    return f"{os.major(number)}:{os.minor(number)}"


def _write(path: str, name: str, rule: str) -> None:
    with (
        _hierarchy() as top,
        descriptors.closing(os.open(f"{path.strip('/')}/{name}".lstrip("/"), os.O_WRONLY | os.O_CLOEXEC, dir_fd=top)) as file,
    ):
        os.write(file, rule.encode())


@contextlib.contextmanager
def _hierarchy() -> Iterator[int]:
    """Yield a descriptor of the whole hierarchy, mounted nowhere: a container sees only its own part at /sys/fs/cgroup."""
    with descriptors.closing(_call(_SYS_FSOPEN, b"cgroup", _CLOSE_ON_EXEC)) as context:
        _call(_SYS_FSCONFIG, context, _SET_FLAG, _CONTROLLER.encode(), None, 0)
        _call(_SYS_FSCONFIG, context, _CREATE, None, None, 0)
        with descriptors.closing(_call(_SYS_FSMOUNT, context, _CLOSE_ON_EXEC, 0)) as top:
            yield top


def _call(number: int, *arguments: int | bytes | None) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "the hierarchy of device cgroups")
    return result
