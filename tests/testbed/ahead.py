"""Runs slow preparations in the background, during another command.

``python3 -m tests.testbed.ahead BACKGROUND COMMAND…``: ``BACKGROUND`` is one word with a shell command. Its output goes to a log. If it
fails, the program prints the log's end and fails.
"""

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Sequence

from tests.testbed import layout, progress


def run(background: str, command: Sequence[str], log: pathlib.Path) -> int:
    """Run both commands at once; return the exit status of ``command`` or, if that is 0, of ``background``, a shell command.

    If ``command`` fails, ``background`` is ended.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    progress.say(f"  ▸ beside it, {background}; log {log}")
    with log.open("w") as output:
        builds = subprocess.Popen(
            ["sh", "-c", background],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        status = subprocess.run(command, check=False).returncode
        if status:
            return _as_of_a_shell(status)
        if builds.poll() is None:
            progress.say(f"  … waiting for {background}")
        status = builds.wait()
    finally:
        if builds.poll() is None:
            os.killpg(builds.pid, signal.SIGTERM)
            builds.wait()
    progress.say(f"  ✗ {background} failed; log {log}:\n{progress.last_lines(log)}" if status else f"  ✓ {background}")
    return _as_of_a_shell(status)


def _as_of_a_shell(status: int) -> int:
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # then run() ends the background
    sys.exit(run(sys.argv[1], sys.argv[2:], layout.logs() / "ahead.log"))
