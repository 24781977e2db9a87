"""The processes of attachment pods, which have claims for guests of this node."""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import layout
from handler.pods import places
from handler.pods.process import Launcher, in_pod

_END_SECONDS: Final = 2.0
"""For a killed process: more only if its storage hangs."""
_ROUNDS: Final = 8
"""A process may start others before it is killed."""


class NotListening(OSError):
    """The process of an attachment pod does not listen yet, or its pod is gone."""


@contextmanager
def opened(pod_uid: str, kubelet: Path = places.KUBELET_DIRECTORY) -> Iterator[Launcher]:
    """Yield the process of an attachment pod as a Launcher, closed afterwards. Raises OSError, or ValueError for an invalid uid.

    Raises NotOfThisPod if a process outside of this pod listens at its socket; NotListening if the pod is not here, or does not listen yet.
    """
    try:
        with places.run_directory(pod_uid, kubelet) as directory, places.connect(directory, layout.ATTACHMENT_SOCKET) as link:
            process = Launcher.of(places.peer_process(link), pod_uid)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NotListening("the attachment pod, which mounts the claim, is not ready yet") from error
    try:
        yield process
    finally:
        process.close()


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGKILL)


def end(pod_uid: str, proc: Path = Path("/proc"), kill: Callable[[int], None] = _kill) -> None:
    """Kill all processes of a pod, and wait for their end; then none of them writes to its claim. Idempotent.

    Raises OSError: EBUSY if a process does not end, because its storage hangs; ValueError for an invalid uid.
    """
    if not places.is_uid(pod_uid):
        raise ValueError(f"{ascii(pod_uid)[:80]} is not a pod uid")
    for _ in range(_ROUNDS):
        found = [each.name for each in proc.iterdir() if each.name.isdecimal() and _is_of_pod(each, pod_uid)]
        if not [pid for pid in found if _end(int(pid), pod_uid, proc, kill)]:
            return
    raise OSError(errno.EBUSY, f"pod {pod_uid} starts processes as fast as they are killed")


def _is_of_pod(process: Path, pod_uid: str) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        return in_pod((process / "cgroup").read_text(errors="replace"), pod_uid)
    return False


def _end(pid: int, pod_uid: str, proc: Path, kill: Callable[[int], None]) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    with descriptors.closing(process):
        if _ends(process, 0) or not _is_of_pod(proc / str(pid), pod_uid):  # the id may have another process by now
            return False
        kill(process)
        if not _ends(process, _END_SECONDS):
            raise OSError(errno.EBUSY, f"process {pid} of pod {pod_uid} does not end; its storage may be unreachable")
    return True


def _ends(process: int, seconds: float) -> bool:
    polled = select.poll()
    polled.register(process, select.POLLIN)
    return bool(polled.poll(seconds * 1000))
