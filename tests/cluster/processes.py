"""Kill the processes of a pod from outside, like a power cut.

The pod's uid is in their cgroup.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any


def of_pod(pod: dict[str, Any]) -> dict[int, str]:
    marker = f"pod{pod['metadata']['uid']}"
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if marker not in (directory / "cgroup").read_text():
                continue
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if command and "pause" not in command.split()[0]:
            found[int(directory.name)] = command
    return found


def kill(pod: dict[str, Any], *, containing: str = "") -> list[int]:
    pids = [pid for pid, command in of_pod(pod).items() if containing in command]
    assert pids, f"pod {pod['metadata']['name']} has no process with {containing!r}"
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pids


def processor_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


def proportional_kib(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:")))
