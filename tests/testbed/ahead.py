"""Runs slow preparations in the background, during another command.

``python3 -m tests.testbed.ahead BACKGROUND COMMAND…``: ``BACKGROUND`` is one word with a shell command. Its output goes to a log.
"""

import pathlib
import subprocess
import sys
from collections.abc import Sequence

from tests.testbed import layout, progress
from tests.testbed.commands import Commands, as_of_a_shell, end


def run(background: str, command: Sequence[str], log: pathlib.Path) -> int:
    """Return the exit status of ``command`` or, if that is 0, of ``background``, which ends if ``command`` fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    progress.say(f"  ▸ beside it, {background}; log {log}")
    with Commands() as commands, log.open("w") as output:
        builds = commands.start(
            ["sh", "-c", background],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        if status := commands.run(command):
            end(builds)
            builds.wait()
            return status
        if builds.poll() is None:
            progress.say(f"  … waiting for {background}")
        status = as_of_a_shell(builds.wait())
    progress.say(f"  ✗ {background} failed; log {log}:\n{progress.last_lines(log)}" if status else f"  ✓ {background}")
    return status


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:], layout.logs() / "ahead.log"))
