"""Metrics of the process from ``/proc`` (proc_pid_stat(5)), with the names of Prometheus' libraries."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from apiserver.metrics.instruments import Read

_SELF: Final = Path("/proc/self")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME, _STARTTIME, _VSIZE, _RSS = 11, 12, 19, 20, 21  # after the program's name


def families() -> Iterator[Read]:
    """Yield the process's metrics, read with the page."""

    def one(name: str, kind: str, about: str, value: Callable[[], float]) -> Read:
        return Read(f"process_{name}", kind, about, (), lambda: [((), value())])

    started = _booted() + _stat(_STARTTIME) / _TICKS
    yield one("virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", lambda: _stat(_VSIZE))
    yield one("resident_memory_bytes", "gauge", "Resident memory size in bytes.", lambda: _stat(_RSS) * resource.getpagesize())
    yield one("start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", lambda: started)
    yield one("cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.", lambda: _stat(_UTIME, _STIME) / _TICKS)
    yield one("open_fds", "gauge", "Number of open file descriptors.", lambda: sum(1 for _ in (_SELF / "fd").iterdir()))
    yield one("max_fds", "gauge", "Maximum number of open file descriptors.", lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _stat(*fields: int) -> float:
    # The program's name comes first, in parentheses.
    values = (_SELF / "stat").read_bytes().rpartition(b")")[2].split()
    return float(sum(int(values[each]) for each in fields))


def _booted() -> float:
    lines = Path("/proc/stat").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("btime "))
