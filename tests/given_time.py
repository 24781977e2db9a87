"""Deadlines in given time: they count what a guest or a test got of the processor, and leave out what other programs took.

Where nothing else asks for the processor this is the time of the clock on the wall. ``tests/own_time.py`` does the same for work that runs
in the loop of a test itself; this module is for tests that wait for other processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LAST_RESORT_SECONDS: Final = 600.0
"""Of the wall: every wait ends then. A wait for more given seconds ends after as many seconds of the wall."""
LEAST_SHARE: Final = 1 / 8
"""Part of the wall's time that is given at least. ``/proc/pressure/cpu`` says only that some task waited, not that all of them did."""
LOOK_SECONDS: Final = 2.0
"""Age at which the list of a guest's processes is read again: to read all of /proc costs a few milliseconds."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Look:
    """One look at the clocks, in seconds."""

    wall: float
    stalled: float
    """Total of ``/proc/pressure/cpu``: some task of this machine waited for a processor so long."""
    guests: Mapping[int, float] = field(default_factory=dict)
    """Processor time of each process of a guest, by its process id."""


def given(before: Look, after: Look) -> float:
    """Return the time that was given between two looks: what guests got, or the time without a task that waited."""
    wall = after.wall - before.wall
    got = sum(seconds - before.guests.get(pid, 0.0) for pid, seconds in after.guests.items())
    free = wall - (after.stalled - before.stalled)
    return min(wall, max(got, free, wall * LEAST_SHARE))


def look(processes: Iterable[int] = ()) -> Look:
    """Look at the clocks now."""
    found = {pid: seconds for pid in processes if (seconds := processor_seconds(pid)) is not None}
    return Look(time.monotonic(), stalled_seconds(), found)


class Deadline:
    """The end of one wait, a number of given seconds from now."""

    def __init__(
        self,
        seconds: float,
        processes: Callable[[], Iterable[int]] = tuple,
        look: Callable[[Iterable[int]], Look] = look,
    ) -> None:
        """Begin to count.

        Args:
            seconds: of given time.
            processes: return the process ids of the guests that are waited for; without any, the machine's pressure counts alone.
            look: the clocks.
        """
        self._processes, self._look = processes, look
        self._pids = tuple(processes())
        self._last = look(self._pids)
        self._listed = self._last.wall
        self._left = seconds
        self._end = self._last.wall + max(seconds, LAST_RESORT_SECONDS)

    @property
    def left(self) -> float:
        """Seconds that are left, zero or less when it is over. The wall's clock goes faster than these, never slower."""
        now = self._look(self._pids)
        self._left -= given(self._last, now)
        self._last = now
        if now.wall - self._listed > LOOK_SECONDS:
            self._pids, self._listed = tuple(self._processes()), now.wall
            known = set(now.guests)
            self._last = Look(now.wall, now.stalled, {**now.guests, **self._look(set(self._pids) - known).guests})
        return min(self._left, self._end - now.wall)

    @property
    def is_over(self) -> bool:
        """True if nothing is left."""
        return self.left <= 0


def stalled_seconds() -> float:
    """Return the total of ``/proc/pressure/cpu``; it is 0 where the kernel has no such file."""
    try:
        line = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except OSError:
        return 0.0
    return int(line.rpartition("total=")[2]) / 1e6


def processor_seconds(pid: int) -> float | None:
    """Return user and system time of a process, or None where there is none."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return (int(words[11]) + int(words[12])) / _TICKS


def guests(domain: str = "") -> list[int]:
    """Return the process ids of QEMU processes on this machine, of one libvirt domain (``namespace_name``) or of all."""
    mark = f"guest={domain}," if domain else "guest="
    return [pid for pid, command in _commands() if mark in command and "qemu" in command.partition("\0")[0]]


def _commands() -> Iterable[tuple[int, str]]:
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            yield int(directory.name), (directory / "cmdline").read_bytes().decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
