"""Waits for a guest's prompt, through the kubectl plugin in a pseudo-terminal."""

import os
import re
import select
import subprocess
import time

from tests.testbed import kubectl, plugin, progress

LEAVE = b"\x1d"  # Ctrl-]


def wait_for(machine: str, pattern: str, *, timeout_seconds: float = 90) -> str:
    deadline = time.monotonic() + timeout_seconds
    seen = ""
    while time.monotonic() < deadline:
        seen, found = _attach_once(machine, pattern, deadline)
        if found:
            return seen
        time.sleep(1)
    raise progress.StepFailed(
        f"the serial console of {machine} did not show {pattern!r} within {timeout_seconds:.0f} s; the end of it:\n{seen[-1500:]}"
    )


def _attach_once(machine: str, pattern: str, deadline: float) -> tuple[str, bool]:
    controller, terminal = os.openpty()
    environment = {**os.environ, **kubectl.environment()}
    process = subprocess.Popen(
        [plugin.program(), "console", machine], stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True, env=environment
    )
    os.close(terminal)
    seen = ""
    try:
        while time.monotonic() < deadline:
            ready, _, _ = select.select([controller], [], [], 2)
            if not ready:
                os.write(controller, b"\r")
                continue
            try:
                seen += os.read(controller, 65536).decode(errors="replace")
            except OSError:
                return seen, False
            if re.search(pattern, seen):
                os.write(controller, LEAVE)
                return seen, True
        return seen, False
    finally:
        _end(process)
        os.close(controller)


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
