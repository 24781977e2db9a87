"""A launcher: the process behind a pod's socket, verified to belong to that pod.

Process ids are reused. A :class:`Launcher` opens a pidfd, the network namespace and the root directory before a last check that the
verified process still runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from apiserver.apis.virt.places import layout


class NotOfThisPod(Exception):
    """The process behind a pod's socket does not belong to that pod."""


def in_pod(cgroups: str, pod_uid: str) -> bool:
    """Return whether ``/proc/PID/cgroup`` names the pod, for both cgroup drivers of the kubelet (systemd's writes ``_`` for ``-``)."""
    names = {f"pod{pod_uid}", f"pod{pod_uid.replace('-', '_')}.slice"}
    for line in cgroups.splitlines():
        for part in line.rsplit(":", 1)[-1].split("/"):
            if part in names or any(part.endswith(f"-{name}") for name in names):
                return True
    return False


@dataclass(frozen=True, slots=True)
class Launcher:
    """A running launcher process; :meth:`close` closes its descriptors."""

    pid: int
    pidfd: int
    network: int
    """Descriptor of its network namespace."""
    root: int
    """O_PATH descriptor of the container's file system."""

    @classmethod
    def of(cls, pid: int, pod_uid: str, *, user: int = layout.USER_ID, proc: Path = Path("/proc")) -> Self:
        """Return the launcher with this process id, which the caller closes.

        Raises:
            NotOfThisPod: it belongs to another pod or user.
            OSError: it has ended (ProcessLookupError, FileNotFoundError), or cannot be opened.
        """
        with contextlib.ExitStack() as stack:

            def keep(descriptor: int) -> int:
                stack.callback(os.close, descriptor)
                return descriptor

            here = proc / str(pid)
            pidfd = keep(os.pidfd_open(pid))
            network = keep(os.open(here / "ns/net", os.O_RDONLY | os.O_CLOEXEC))
            root = keep(os.open(here / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            if not in_pod((here / "cgroup").read_text(errors="replace"), pod_uid):
                raise NotOfThisPod(f"process {pid} is not in the cgroup of pod {pod_uid}")
            if (owner := here.stat().st_uid) != user:
                raise NotOfThisPod(f"process {pid} of pod {pod_uid} runs as user {owner}, not {user}")
            if _has_ended(pidfd):  # then all of the above may be of another process
                raise ProcessLookupError(f"process {pid} of pod {pod_uid} has ended")
            stack.pop_all()
            return cls(pid, pidfd, network, root)

    @property
    def has_ended(self) -> bool:
        """True once the process has ended."""
        return _has_ended(self.pidfd)

    async def ended(self) -> None:
        """Wait until the process has ended."""
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(self.pidfd, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(self.pidfd)

    def duplicate(self) -> Launcher:
        """Return a copy with its own descriptors, for a thread that may outlive a connection."""
        return Launcher(self.pid, os.dup(self.pidfd), os.dup(self.network), os.dup(self.root))

    def close(self) -> None:
        """Close the descriptors; the object is unusable afterwards."""
        for descriptor in (self.pidfd, self.network, self.root):
            os.close(descriptor)


def _has_ended(pidfd: int) -> bool:
    polled = select.poll()  # select(2) supports no descriptors above 1023
    polled.register(pidfd, select.POLLIN)
    return bool(polled.poll(0))
