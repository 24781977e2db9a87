"""Runs a command, and prints its wall time, processor time and the load at its end.

``python3 -m tests.testbed.timed TITLE COMMAND…`` exits as the command does.
"""

import os
import resource
import sys
import time
from collections.abc import Sequence

from tests.testbed.commands import Commands


def run(title: str, command: Sequence[str]) -> int:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with Commands() as commands:
        status = commands.run(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = describe(time.monotonic() - began, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime, os.getloadavg()[0])
    print(f"{title}: {words}", file=sys.stderr, flush=True)
    return status


def describe(wall: float, user: float, system: float, load: float) -> str:
    minutes, seconds = divmod(round(wall), 60)
    cpu = f"{user + system:.0f} CPU-seconds ({user:.0f} user, {system:.0f} system; without the cluster's processes)"
    return f"{minutes} min {seconds} s, {cpu}, load {load:.1f} on {os.cpu_count()} processors"


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
