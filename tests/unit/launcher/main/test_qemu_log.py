from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.main.programs import qemu_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "default_testvm.log"


def test_a_log_within_its_bound_is_left_alone(log: Path) -> None:
    log.write_bytes(b"x" * qemu_log.MAX_BYTES)
    assert not qemu_log.trim(log)
    assert log.stat().st_size == qemu_log.MAX_BYTES


def test_long_log_is_cut_to_its_end_and_appending_continues(log: Path) -> None:
    with log.open("ab") as writer:
        writer.write(b"x\n" * qemu_log.MAX_BYTES + b"the last\n")
        writer.flush()
        assert qemu_log.trim(log)
        assert log.stat().st_size == qemu_log.KEPT_BYTES
        writer.write(b"and after it\n")
    assert log.stat().st_size < qemu_log.KEPT_BYTES + 20
    assert qemu_log.last_lines(log)[-2:] == ("the last", "and after it")


def test_fifo_in_place_of_the_log_does_not_block(log: Path) -> None:
    os.mkfifo(log)
    assert qemu_log.last_lines(log) == ()
    assert not qemu_log.trim(log)


def test_a_link_in_its_place_leads_nowhere(log: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"x" * (qemu_log.MAX_BYTES + 1))
    log.symlink_to(elsewhere)
    assert not qemu_log.trim(log)
    assert qemu_log.last_lines(log) == ()
    assert elsewhere.stat().st_size == qemu_log.MAX_BYTES + 1


def test_a_device_in_its_place_is_not_read() -> None:
    assert qemu_log.last_lines(Path("/dev/urandom")) == ()


def test_no_log_has_no_last_words(log: Path) -> None:
    assert qemu_log.last_lines(log) == ()
    assert not qemu_log.trim(log)


def test_the_termination_log_is_cut_too(log: Path, tmp_path: Path) -> None:
    termination = tmp_path / "termination-log"
    assert qemu_log.trim_all(log, termination) == []
    termination.write_bytes(b"x" * (qemu_log.MAX_BYTES + 1))
    log.write_bytes(b"y")
    assert qemu_log.trim_all(log, termination) == [termination]
    assert termination.stat().st_size == qemu_log.KEPT_BYTES
