"""Runs shell commands at the same time, and shows the output of each in one piece.

``python3 -m tests.testbed.together COMMAND…``: the output of the last one is shown as it comes, that of the others when they end. All run
to their ends.
"""

import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

_printing = threading.Lock()


def run(commands: Sequence[str]) -> int:
    with ThreadPoolExecutor(len(commands)) as threads:
        hidden = [threads.submit(_hidden, each) for each in commands[:-1]]
        shown = threads.submit(_shown, commands[-1])
        statuses = [each.result() for each in (*hidden, shown)]
    failed = next((each for each in statuses if each), 0)
    return failed if failed >= 0 else 128 - failed


def _hidden(command: str) -> int:
    done = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    with _printing:
        sys.stdout.write(f"\n$ {command}\n{done.stdout.decode(errors='replace')}")
        sys.stdout.flush()
    return done.returncode


def _shown(command: str) -> int:
    return subprocess.run(["sh", "-c", command], check=False).returncode


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
