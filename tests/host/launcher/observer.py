"""Observes the domain in two pods continuously, in libvirt and in the process table."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import libvirt

from apiserver.apis.virt.places import layout
from tests.damage import never_again
from tests.given_time import LOOK_SECONDS, Deadline
from tests.host.launcher.sandbox import Launcher

View = tuple[int, int]
RUNNING = libvirt.VIR_DOMAIN_RUNNING
VCPU_TICKS = 5
"""Processor time (in 1/100 s) of a vCPU that is created and paused."""
PAUSE_SECONDS = 0.005
AWAITED_PAUSE_SECONDS = 0.001
TICKS_PAUSE_SECONDS = 0.05
"""Processor time adds up, so no run is missed."""


class Pod:
    """One launcher's libvirtd, seen from outside."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._connection: libvirt.virConnect | None = None

    def look(self) -> View:
        """Return libvirt's state and reason of the domain; (0, 0) if none runs."""
        try:
            if self._connection is None:
                if not (self._launcher.run_directory / layout.LIBVIRT_SOCKET).exists():
                    return 0, 0
                directory = os.open((self._launcher.run_directory / layout.LIBVIRT_SOCKET).parent, os.O_PATH)
                try:
                    self._connection = libvirt.open(f"qemu+unix:///session?socket=/proc/self/fd/{directory}/libvirt-sock")
                finally:
                    os.close(directory)
            domains = self._connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
            state, reason = domains[0].state() if domains else (0, 0)
        except libvirt.libvirtError:
            self.close()
            return 0, 0
        return state, reason

    def vcpu_ticks(self) -> int:
        with contextlib.suppress(OSError, IndexError):  # any may end before it is read
            pids = self._launcher.qemu()
            tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir() if (task / "comm").read_text().startswith("CPU ")]
            times = [(task / "stat").read_text().rsplit(")", 1)[1].split() for task in tasks]
            return sum(int(each[11]) + int(each[12]) for each in times) if pids else -1
        return -1

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(libvirt.libvirtError):
                connection.close()


class Observer:
    def __init__(self, source: Launcher, target: Launcher) -> None:
        self._source, self._target = Pod(source), Pod(target)
        self._closed = threading.Event()
        self._looked = threading.Condition()
        self._is_awaited = False
        self.faults: list[str] = []
        self.samples = 0
        self.stopped = self.resumed = 0.0
        """Last time the source ran, first time the target did (monotonic)."""
        self.views: tuple[View, View] = ((0, 0), (0, 0))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        released, ticks, counted = False, -1, 0.0
        while not self._closed.is_set():
            source, target = self._source.look(), self._target.look()
            if target[0] == RUNNING and self._source.look()[0] == RUNNING:
                self.faults.append(f"libvirt: both run, {source} and {target}")
            if source[0] == RUNNING:
                self.stopped = time.monotonic()
            if target[0] == RUNNING:
                released = True
                self.resumed = self.resumed or time.monotonic()
            if not released and time.monotonic() - counted > TICKS_PAUSE_SECONDS:
                ticks, counted = self._target.vcpu_ticks(), time.monotonic()
            if not released and ticks > VCPU_TICKS and self._source.vcpu_ticks() >= 0:
                self.faults.append(f"processes: the target's processors have run for {ticks} ticks beside the source's QEMU")
            with self._looked:
                self.views = source, target
                self.samples += 1
                self._looked.notify_all()
            self._closed.wait(AWAITED_PAUSE_SECONDS if self._is_awaited else PAUSE_SECONDS)

    def wait(self, condition: Callable[[View, View], bool], seconds: float = 30.0) -> None:
        self._is_awaited, deadline = True, Deadline(seconds)
        with self._looked:
            while not self._looked.wait_for(lambda: condition(*self.views), LOOK_SECONDS):
                assert not deadline.is_over, f"still {self.views}"
        self._is_awaited = False

    def look_again(self, times: int, seconds: float = 30.0) -> None:
        wanted = self.samples + times
        self.wait(lambda _source, _target: self.samples >= wanted, seconds)

    def close(self) -> None:
        self._closed.set()
        self._thread.join(10)
        self._source.close()
        self._target.close()


@contextlib.contextmanager
def observing(source: Launcher, target: Launcher) -> Iterator[Observer]:
    libvirt.registerErrorHandler(lambda *_: None, None)  # it would print errors that are raised anyway
    made = Observer(source, target)
    try:
        yield made
    finally:
        made.close()
        with never_again("two QEMU"):
            assert made.faults == []
