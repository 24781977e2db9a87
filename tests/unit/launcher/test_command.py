from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from launcher import __main__
from launcher.main import life
from launcher.protocol import messages
from tests.host.launcher.image import entry_point


@pytest.mark.parametrize(("flag", "code"), [("--help", 0), ("-h", 0), ("--what", 2)])
def test_flags_are_answered_with_what_it_is_and_start_nothing(
    flag: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["virt-launcher", flag])
    monkeypatch.setattr("launcher.main.process.run", None)

    assert __main__.main() == code

    said = capsys.readouterr()
    assert "It has no flags" in (said.err if code else said.out)


def test_a_sigterm_that_came_before_python_began_is_heeded() -> None:
    """The image's entry point blocks it; in a shell that is not the first process it would otherwise end the shell."""
    script = 'kill -TERM $$; exec "$@"'
    blocked = [*entry_point()[:-1], "sh", "-c", script, "sh", sys.executable, "-m", "launcher"]

    done = subprocess.run(blocked, capture_output=True, text=True, timeout=50, check=False)

    assert (done.returncode, done.stderr) == (0, f"{__main__.NOT_RUN}\n")


def test_the_kubelet_sees_of_a_start_that_was_stopped_what_virt_launcher_says_of_any_other() -> None:
    kind, _, words = __main__.NOT_RUN.partition(": ")

    assert kind in get_args(messages.EndingKind)
    assert life.termination_message(messages.Ending(kind, words)) == __main__.NOT_RUN  # type: ignore[arg-type]  # checked above


def test_a_thread_that_hangs_is_not_waited_for() -> None:
    program = """
import asyncio, threading
from launcher import __main__

async def run():
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    await asyncio.sleep(0)
    return 3

asyncio.run(__main__._to_the_end(run))
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=50, check=False)

    assert done.returncode == 3
