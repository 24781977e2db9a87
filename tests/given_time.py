"""Deadlines in given time: the processor time available to a guest or a test, without other programs' share.

``tests/own_time.py`` is for work in a test's own event loop.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LAST_RESORT_SECONDS: Final = 600.0
"""Wall-clock limit of every wait in given seconds."""
LEAST_SHARE: Final = 1 / 8
"""Least share of wall-clock time that counts as given: ``/proc/pressure/cpu`` only shows that some task waited."""
LOOK_SECONDS: Final = 2.0
"""Then a guest's processes are listed again; reading /proc takes milliseconds."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Look:
    wall: float
    stalled: float
    """From ``/proc/pressure/cpu``: some task waited for a processor."""
    guests: Mapping[int, float] = field(default_factory=dict)


def given(before: Look, after: Look) -> float:
    """Return the given part of the wall seconds between two looks: guests' processor seconds or, if more, seconds without waiting tasks.

    At least ``LEAST_SHARE`` of them counts as given.
    """
    wall = after.wall - before.wall
    got = sum(seconds - before.guests.get(pid, 0.0) for pid, seconds in after.guests.items())
    free = wall - (after.stalled - before.stalled)
    return min(wall, max(got, free, wall * LEAST_SHARE))


def look(processes: Iterable[int] = ()) -> Look:
    found = {pid: seconds for pid in processes if (seconds := processor_seconds(pid)) is not None}
    return Look(time.monotonic(), stalled_seconds(), found)


class Deadline:
    def __init__(
        self,
        seconds: float,
        processes: Callable[[], Iterable[int]] = tuple,
        look: Callable[[Iterable[int]], Look] = look,
    ) -> None:
        self._processes, self._look = processes, look
        self._pids = tuple(processes())
        self._last = look(self._pids)
        self._listed = self._last.wall
        self._left = seconds
        self._end = self._last.wall + max(seconds, LAST_RESORT_SECONDS)

    @property
    def left(self) -> float:
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
        return self.left <= 0


def stalled_seconds() -> float:
    try:
        line = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except OSError:
        return 0.0
    return int(line.rpartition("total=")[2]) / 1e6


def processor_seconds(pid: int) -> float | None:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return (int(words[11]) + int(words[12])) / _TICKS


def guests(domain: str = "") -> list[int]:
    mark = f"guest={domain}," if domain else "guest="
    return [pid for pid, command in _commands() if mark in command and "qemu" in command.partition("\0")[0]]


def _commands() -> Iterable[tuple[int, str]]:
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            yield int(directory.name), (directory / "cmdline").read_bytes().decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
