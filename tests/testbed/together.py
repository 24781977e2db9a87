"""Runs shell commands at the same time, and shows the output of each in one piece.

``python3 -m tests.testbed.together COMMAND…``: the output of the last one is shown as it comes, that of the others when they end.
"""

import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.testbed.commands import Commands, as_of_a_shell

_SHELL = ("bash", "-c")  # for one command, dash would stay in between
_printing = threading.Lock()


def run(commands: Sequence[str]) -> int:
    with Commands() as started, ThreadPoolExecutor(len(commands)) as threads:
        hidden = [threads.submit(_hidden, started, each) for each in commands[:-1]]
        shown = threads.submit(started.run, [*_SHELL, commands[-1]])
        statuses = [each.result() for each in (*hidden, shown)]
    return next((each for each in statuses if each), 0)


def _hidden(started: Commands, command: str) -> int:
    process = started.start([*_SHELL, command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = process.communicate()
    with _printing:
        sys.stdout.write(f"\n$ {command}\n{output.decode(errors='replace')}")
        sys.stdout.flush()
    return as_of_a_shell(process.returncode)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
