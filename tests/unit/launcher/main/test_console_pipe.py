from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.main.serving.console import Console
from launcher.main.serving.console_pipe import ConsolePipe


def test_a_late_reader_gets_the_first_output(tmp_path: Path) -> None:
    pipe = ConsolePipe(tmp_path / "pipe")
    pipe.write(b"first\n")
    for _ in range(100):
        pipe.write(b"x" * 65_536)
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    found = os.read(reader, 1 << 20)
    assert found.startswith(b"first\n")
    assert len(found) <= 64 << 10
    pipe.write(b"later\n")
    assert os.read(reader, 1 << 20) == b"later\n"
    os.close(reader)


def test_a_pipe_that_exists_is_used(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ConsolePipe(tmp_path / "pipe").write(b"a")


def test_a_directory_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ConsolePipe(tmp_path / "none" / "pipe")


def test_a_console_copies_its_output(tmp_path: Path) -> None:
    console, copied = Console(tmp_path / "serial", lambda: None), list[bytes]()
    console._show(b"lost")
    console.copy_to(copied.append)
    console._show(b"kept")
    assert copied == [b"kept"]
