"""Observes guests' processes, writes to disk, and clients' answers."""

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
"""Used in a circle; each has a number and the boot that wrote it."""
AHEAD = 64


@dataclass(frozen=True)
class Record:
    number: int
    boot: str


class Disk:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._newest = 0

    def newest(self) -> int:
        with self._file.open("rb") as image:
            while ahead := self._run(image.fileno()):
                self._newest += ahead
        return self._newest

    def records(self, first: int, last: int) -> Iterator[tuple[int, Record | None]]:
        with self._file.open("rb") as image:
            for number in range(first, last + 1):
                yield number, _record(os.pread(image.fileno(), SECTOR, number % SECTORS * SECTOR))

    def missing(self, first: int, last: int) -> list[int]:
        return [number for number, found in self.records(first, last) if found is None or found.number != number]

    def boots(self, first: int, last: int) -> int:
        return len({found.boot for _, found in self.records(first, last) if found is not None})

    def _run(self, image: int) -> int:
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
    pid: int
    pod_uid: str
    processor_seconds: float


def qemus(guest: str) -> list[Qemu]:
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if not (directory / "comm").read_text().startswith("qemu-system"):
                continue
            if f"guest={guest},".encode() in (directory / "cmdline").read_bytes():
                found.append(Qemu(int(directory.name), _pod_uid((directory / "cgroup").read_text()), _processors(directory)))
        except (OSError, ValueError):
            continue
    return found


def _pod_uid(cgroup: str) -> str:
    return cgroup.rpartition("/pod")[2].partition("/")[0].strip()


def _processors(directory: Path) -> float:
    total = 0
    for thread in (directory / "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # threads end while QEMU continues
            if (thread / "comm").read_text().startswith("CPU "):
                total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


@dataclass
class Watched:
    guest: str
    disk: Disk
    samples: list[Sample] = field(default_factory=list)


class Watch:
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
    def __init__(self) -> None:
        self.times: list[float] = []
        self.failures: list[Failure] = []

    def listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            at, _, said = line.strip().partition(" ")
            if said == client.OK:
                self.times.append(float(at))
            else:
                self.failures.append(Failure(float(at), said))


@contextmanager
def asking(node: layout.Node, address: str, per_second: int = client.PER_SECOND) -> Iterator[Answers]:
    answers = Answers()
    command = ["nsenter", f"--net={node.namespace}", "--", sys.executable, "-m", "tests.cuts.client", address, str(per_second)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=layout.REPOSITORY) as process:
        listener = threading.Thread(target=answers.listen, args=(process,), daemon=True)
        listener.start()
        try:
            yield answers
        finally:
            process.terminate()
            process.wait()
            listener.join()
