from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from launcher import __main__
from launcher.main.decisions import life
from launcher.protocol import messages
from tests.host.launcher.image import entry_point


@pytest.mark.parametrize(("flag", "code"), [("--help", 0), ("-h", 0), ("--what", 2)])
def test_flags_are_answered_with_what_it_is_and_start_nothing(flag: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-m", "launcher", flag], capture_output=True, text=True, timeout=50, check=False)

    assert done.returncode == code
    assert (done.stdout, done.stderr) == (("", f"{__main__.HELP}\n") if code else (f"{__main__.HELP}\n", ""))


def test_a_sigterm_that_came_before_python_began_is_heeded() -> None:
    """The image's entry point blocks SIGTERM; otherwise it would end a shell that is not process 1."""
    script = 'kill -TERM $$; exec "$@"'
    blocked = [*entry_point()[:-1], "sh", "-c", script, "sh", sys.executable, "-m", "launcher"]

    done = subprocess.run(blocked, capture_output=True, text=True, timeout=50, check=False)

    assert (done.returncode, done.stderr) == (0, f"{__main__.NOT_RUN}\n")


def test_stopped_start_has_a_regular_termination_message() -> None:
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


def test_a_mistake_that_ends_the_process_is_1_and_logged() -> None:
    program = """
import asyncio
from launcher import __main__

async def run():
    raise RuntimeError("no socket")

asyncio.run(__main__._to_the_end(run))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)

    assert done.returncode == 1
    assert "virt-launcher failed" in done.stderr
    assert "no socket" in done.stderr


@pytest.mark.parametrize("there", ["a file", "a link", "nothing"])
def test_stopped_start_writes_only_to_the_termination_log(tmp_path: Path, there: str) -> None:
    log, other = tmp_path / "termination-log", tmp_path / "other"
    other.touch()
    if there == "a file":
        log.touch()
    elif there == "a link":
        log.symlink_to(other)
    program = f"from launcher import __main__; __main__.TERMINATION_LOG = {str(log)!r}; __main__._end(15, None)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)

    assert (done.returncode, done.stderr) == (0, f"{__main__.NOT_RUN}\n")
    assert (log.read_text() if log.exists() else "") == (__main__.NOT_RUN if there == "a file" else "")
    assert log.exists() == (there != "nothing")
    assert other.read_text() == ""


def test_files_are_private_and_tls_is_not_loaded() -> None:
    program = """
import os, sys, types

async def run():
    print(os.umask(0) == 0o077, sys.modules.get("ssl"), sys.modules.get("_hashlib", "loaded"))
    sys.stdout.flush()
    return 0

process = types.ModuleType("launcher.main.process")
process.run = run
sys.modules["launcher.main.process"] = process
from launcher import __main__
import launcher.main
launcher.main.process = process
sys.argv = ["virt-launcher"]
os.umask(0o022)
__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "True None None\n", "")


def test_a_pod_that_removes_images_deletes_its_files_and_ends(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"memory")
    (tmp_path / "image.used").touch()
    program = (
        f"from launcher import __main__; __main__.layout.IMAGE_REMOVAL_DIRECTORY = {str(tmp_path)!r}; raise SystemExit(__main__.main())"
    )
    for code, left in ((0, []), (1, [tmp_path / "directory"])):
        for each in left:
            each.mkdir()
        assert subprocess.run([sys.executable, "-c", program], timeout=50, check=False).returncode == code
        assert list(tmp_path.iterdir()) == left
