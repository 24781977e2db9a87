"""Finds the processes of guests on this node, and ends them.

A guest may control its QEMU and its virt-launcher, but neither their user nor their cgroup, so these two decide.
"""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apiserver.apis.virt.places import layout

logger = logging.getLogger(__name__)

PROC: Final = Path("/proc")
_POD: Final = re.compile(r"(?:^|[/-])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?:/|$)")


@dataclass(frozen=True, slots=True)
class Process:
    """A process of virt-launcher's user in a pod."""

    pid: int
    pod_uid: str


def pod_of(cgroups: str) -> str:
    """Return the uid of the pod that ``/proc/PID/cgroup`` names, for both cgroup drivers of the kubelet; else empty."""
    found = (_POD.search(line.rsplit(":", 1)[-1]) for line in cgroups.splitlines())
    return next((each[1].replace("_", "-") for each in found if each is not None), "")


def is_of_user(status: str, user: int) -> bool:
    """Return whether ``/proc/PID/status`` names this real user, and a thread of the process still runs."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    has_ended = fields.get("State", "").split()[:1] in (["Z"], ["X"]) and fields.get("Threads", "1").strip() in ("0", "1")
    return fields.get("Uid", "").split()[:1] == [str(user)] and not has_ended


def guests(proc: Path = PROC, user: int = layout.USER_ID) -> Iterator[Process]:
    """Yield the running processes of virt-launcher's user in pods: guests and their virt-launchers."""
    for directory in proc.iterdir():
        if not directory.name.isdecimal():
            continue
        with suppress(OSError):  # it ended
            if is_of_user((directory / "status").read_text(errors="replace"), user):
                pod = pod_of((directory / "cgroup").read_text(errors="replace"))
                if pod:
                    yield Process(int(directory.name), pod)


Send = Callable[[int, int], object]
"""Sends a signal to the process of a pidfd; raises OSError."""


def kill(process: Process, again: Callable[[int], bool], send: Send = signal.pidfd_send_signal) -> None:
    """Send SIGKILL if ``again``, called with the process id, returns True: it is still that of this process. Nothing if it ended.

    Does not wait for the end. Raises OSError if it cannot be killed.
    """
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if again(process.pid):
                send(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def end(
    pods: Collection[str] | None, proc: Path = PROC, user: int = layout.USER_ID, send: Send = signal.pidfd_send_signal
) -> tuple[Process, ...]:
    """Send SIGKILL to the guests and virt-launchers of these pods (None: of all), without waiting; return those that ran.

    Those that cannot be killed are logged, and returned as well.
    """
    found = tuple(each for each in guests(proc, user) if pods is None or each.pod_uid in pods)

    def is_still(pid: int) -> bool:
        try:
            status, cgroup = ((proc / str(pid) / name).read_text(errors="replace") for name in ("status", "cgroup"))
        except OSError:
            return False
        uid = pod_of(cgroup)
        return is_of_user(status, user) and bool(uid) and (pods is None or uid in pods)

    for each in found:
        try:
            kill(each, is_still, send)
        except OSError as error:  # AppArmor or SELinux may protect a process that is no guest
            logger.error("cannot end a process", extra={"pid": each.pid, "pod": each.pod_uid, "error": str(error)})  # noqa: TRY400 - per look
    return found
