"""Looks at guests from outside, all the time: their processes on both nodes, what they wrote to their disks, and what clients hear.

The nodes of the test cluster are namespaces of this machine, so their processes are in /proc here, and volumes are directories.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.cuts import client
from tests.cuts.judging import Failure, Sample
from tests.testbed import layout

PERIOD_SECONDS = 0.2
SECTOR = 512
SECTORS = 32768
"""Of a guest's disk, each of which has a number and the boot that wrote it; the first one follows the last one."""
AHEAD = 64
"""Sectors that are looked at for further numbers."""


@dataclass(frozen=True)
class Record:
    """Record that a guest wrote into a sector."""

    number: int
    boot: str


class Disk:
    """A guest's disk as a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._newest = 0

    def newest(self) -> int:
        """Return the highest number."""
        with self._file.open("rb") as image:
            while ahead := self._run(image.fileno()):
                self._newest += ahead
        return self._newest

    def records(self, first: int, last: int) -> Iterator[tuple[int, Record | None]]:
        """Return what the sectors of these numbers hold."""
        with self._file.open("rb") as image:
            for number in range(first, last + 1):
                yield number, _record(os.pread(image.fileno(), SECTOR, number % SECTORS * SECTOR))

    def missing(self, first: int, last: int) -> list[int]:
        """Return the numbers of these that the disk does not have."""
        return [number for number, found in self.records(first, last) if found is None or found.number != number]

    def boots(self, first: int, last: int) -> int:
        """Return how many boots wrote these numbers."""
        return len({found.boot for _, found in self.records(first, last) if found is not None})

    def _run(self, image: int) -> int:
        """Return how many numbers follow the newest one without a gap of more than one look."""
        for ahead in range(AHEAD, 0, -1):
            number = self._newest + ahead
            found = _record(os.pread(image, SECTOR, number % SECTORS * SECTOR))
            if found is not None and found.number == number:
                return ahead
        return 0


def _record(sector: bytes) -> Record | None:
    boot, _, number = sector.rstrip(b"\0").partition(b" ")
    return Record(int(number), boot.decode(errors="replace")) if number.strip().isdigit() else None


@dataclass(frozen=True)
class Qemu:
    """A QEMU of a machine."""

    pid: int
    pod_uid: str
    processor_seconds: float


def qemus(guest: str) -> list[Qemu]:
    """Return the QEMUs of a guest (``namespace_name``) on any node."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if not (directory / "comm").read_text().startswith("qemu-system"):
                continue
            if f"guest={guest},".encode() in (directory / "cmdline").read_bytes():
                found.append(Qemu(int(directory.name), _pod_uid((directory / "cgroup").read_text()), _processors(directory)))
        except (OSError, ValueError):  # it has just ended
            continue
    return found


def _pod_uid(cgroup: str) -> str:
    return cgroup.rpartition("/pod")[2].partition("/")[0].strip()


def _processors(directory: Path) -> float:
    """Return what the vCPUs' threads have had of a processor, in seconds (/proc/PID/schedstat: nanoseconds)."""
    total = 0
    for thread in (directory / "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # threads that work for a moment end while QEMU goes on
            if (thread / "comm").read_text().startswith("CPU "):
                total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


@dataclass
class Watched:
    """A guest that is looked at."""

    guest: str
    disk: Disk
    samples: list[Sample] = field(default_factory=list)


class Watch:
    """Takes a sample of each guest five times a second, in a thread, while the block lasts."""

    def __init__(self) -> None:
        self.guests: dict[str, Watched] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.fault = ""

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def forget(self) -> None:
        """Forget the samples up to now."""
        for each in self.guests.values():
            each.samples = each.samples[-1:]

    def _look(self) -> None:
        while not self._over.wait(PERIOD_SECONDS):
            for each in list(self.guests.values()):
                try:
                    processors = {qemu.pid: qemu.processor_seconds for qemu in qemus(each.guest)}
                    each.samples.append(Sample(time.monotonic(), each.disk.newest(), processors))
                except OSError as error:
                    self.fault = str(error)


class Answers:
    """Times at which a Service answered, as its client on a node notes it."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.failures: list[Failure] = []

    def listen(self, process: subprocess.Popen[str]) -> None:
        """Note what the client prints, until it ends."""
        assert process.stdout is not None
        for line in process.stdout:
            at, _, said = line.strip().partition(" ")
            if said == client.OK:
                self.times.append(float(at))
            else:
                self.failures.append(Failure(float(at), said))


@contextmanager
def asking(node: layout.Node, address: str) -> Iterator[Answers]:
    """Ask a Service from a node, ten times a second."""
    answers = Answers()
    command = ["nsenter", f"--net={node.namespace}", "--", sys.executable, "-m", "tests.cuts.client", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=layout.REPOSITORY) as process:
        listener = threading.Thread(target=answers.listen, args=(process,), daemon=True)
        listener.start()
        try:
            yield answers
        finally:
            process.terminate()
            process.wait()
            listener.join()
