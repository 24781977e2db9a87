from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.testbed import layout

MAKEFILE = """
SHELL := /bin/bash
outer:
\t@$(RUN).timed outer $(MAKE) inner
inner:
\t@$(RUN).ahead "$(MAKE) background" $(MAKE) both
both:
\t@$(RUN).together "$(MAKE) hidden" "$(WAIT) shown"
background hidden:
\t@$(WAIT) $@
"""
WAIT = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"
HEARS = """
import pathlib, signal, time
heard = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: heard.append(signal.Signals(number).name))
pathlib.Path("ready").touch()
while not heard:
    time.sleep(0.05)
time.sleep(1)  # a second signal would come by then
pathlib.Path("heard").write_text(" ".join(heard))
"""
NAMES = ("background", "hidden", "shown")


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "wait.py").write_text(WAIT)
    given = {**os.environ, "PYTHONPATH": str(layout.REPOSITORY), "KUBEVIRT_STATE": str(tmp_path)}
    words = ["make", "--silent", f"RUN={sys.executable} -m tests.testbed", f"WAIT={sys.executable} wait.py", "outer"]
    with subprocess.Popen(words, cwd=tmp_path, env=given, stderr=subprocess.PIPE, text=True, start_new_session=True) as outer:
        try:
            deadline = time.monotonic() + 50
            while len(pids(tmp_path)) < len(NAMES) and time.monotonic() < deadline:
                time.sleep(0.05)
            yield outer
        finally:
            for pid in [*pids(tmp_path), outer.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def pids(directory: Path) -> list[int]:
    return [int(text) for name in NAMES if (file := directory / name).exists() and (text := file.read_text())]


def timed_of(outer: subprocess.Popen[str]) -> int:
    return int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_one_program_ends_all(tree: subprocess.Popen[str], tmp_path: Path, number: signal.Signals) -> None:
    started = pids(tmp_path)
    assert len(started) == len(NAMES)
    os.kill(timed_of(tree), number)
    _, said = tree.communicate(timeout=30)
    assert "outer: 0 min " in said
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
    assert "Error 143" in said or "Terminated" in said


def test_sigterm_to_make_ends_all(tree: subprocess.Popen[str], tmp_path: Path) -> None:
    started = pids(tmp_path)
    tree.terminate()
    tree.communicate(timeout=30)
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
    assert tree.returncode == -signal.SIGTERM


def test_ctrl_c_reaches_a_command_once(tmp_path: Path) -> None:
    (tmp_path / "hears.py").write_text(HEARS)
    words = ["setsid", "--ctty", "--wait", sys.executable, "-m", "tests.testbed.timed", "it", sys.executable, "hears.py"]
    ours, theirs = pty.openpty()
    try:
        given = {**os.environ, "PYTHONPATH": str(layout.REPOSITORY)}
        with subprocess.Popen(words, cwd=tmp_path, env=given, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            while process.poll() is None and not (tmp_path / "ready").exists():
                time.sleep(0.05)
            os.write(ours, b"\x03")
            assert process.wait(timeout=30) == 0
    finally:
        os.close(theirs)
        os.close(ours)
    assert (tmp_path / "heard").read_text() == "SIGINT"


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    words = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-m", "tests.testbed.timed", "it", "sh", "-c"]
    done = subprocess.run([*words, "kill -HUP $PPID; sleep 0.5; exit 3"], cwd=layout.REPOSITORY, capture_output=True, check=False)
    assert done.returncode == 3
