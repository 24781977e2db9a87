"""Stop virt-launcher before its guest runs, until the test continues it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from apiserver.apis.meta.objects import Object
from tests.cluster import processes
from tests.cluster.kube import Kubectl, eventually

LAUNCHER = "virt-launcher"
LOOK_SECONDS = 0.02


class Held:
    """A pod's virt-launcher, which gets SIGSTOP once it has a handler for SIGTERM. The caller must call ``go_on``."""

    def __init__(self, pod: Object) -> None:
        self._pod = pod
        self._pids: list[int] = []
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look)
        self._looking.start()

    def stands_still(self) -> None:
        eventually(lambda: self._pids, timeout=90, interval=LOOK_SECONDS, what="virt-launcher begins")

    def is_asked_to_end(self) -> bool:
        """Return whether SIGTERM is pending for each of the launcher's processes that still runs; True if none runs."""
        return not any(_has(pid, "ShdPnd", "SigPnd") is False for pid in self._pids)

    def go_on(self) -> None:
        self._over.set()
        self._looking.join()
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _look(self) -> None:
        while not self._over.is_set() and not self._pids:
            for pid, command in processes.of_pod(self._pod).items():
                if LAUNCHER in command and _has(pid, "SigBlk", "SigCgt"):
                    os.kill(pid, signal.SIGSTOP)
                    self._pids.append(pid)
            time.sleep(LOOK_SECONDS)  # the kernel does not report new processes


def _has(pid: int, *fields: str) -> bool | None:
    """Return whether SIGTERM is in one of these signal sets of a process (proc_pid_status(5)); None if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    sets = (int(line.split()[1], 16) for line in lines if line.partition(":")[0] in fields)
    return any(each & 1 << signal.SIGTERM - 1 for each in sets)


@contextmanager
def held(kubectl: Kubectl, manifest: Object) -> Iterator[Held]:
    name = manifest["metadata"]["name"]
    kubectl.api.create(manifest)
    (pod,) = kubectl.api.until_list("pods", bool, timeout=90, what=f"a pod of {name}", label_selector=f"vm.kubevirt.io/name={name}")
    start = Held(pod)
    try:
        yield start
    finally:
        start.go_on()
