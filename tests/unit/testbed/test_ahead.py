from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.testbed import ahead


def test_both_run_at_once_and_the_background_is_waited_for(tmp_path: Path) -> None:
    background = f"until test -e {tmp_path}/asked; do sleep 0.05; done; sleep 0.3; touch {tmp_path}/built"
    assert ahead.run(background, ["touch", str(tmp_path / "asked")], tmp_path / "log") == 0
    assert (tmp_path / "built").exists()


def test_failed_background_fails_the_run_and_shows_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ahead.run("echo out of disk >&2; exit 3", ["true"], tmp_path / "log") == 3
    assert "out of disk" in capsys.readouterr().err


def test_a_command_that_fails_ends_all_of_the_background(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "open")
    reading = os.open(tmp_path / "open", os.O_RDONLY | os.O_NONBLOCK)
    background = f"exec >{tmp_path}/open; sleep 50 & touch {tmp_path}/begun; wait"
    began = time.monotonic()
    assert ahead.run(background, ["sh", "-c", f"until test -e {tmp_path}/begun; do sleep 0.05; done; exit 4"], tmp_path / "log") == 4
    os.set_blocking(reading, True)
    assert os.read(reading, 1) == b""
    os.close(reading)
    assert time.monotonic() - began < 30
