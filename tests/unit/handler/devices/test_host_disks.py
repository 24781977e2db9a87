from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.devices import host_disks


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[list[int]]:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    descriptors = [os.open(tmp_path / name, os.O_RDONLY | os.O_DIRECTORY) for name in ("a", "b", "a")]
    yield descriptors
    for each in descriptors:
        os.close(each)


def test_locked_directory_does_not_block_another(opened: list[int]) -> None:
    passed = threading.Event()

    def make() -> None:
        with host_disks.locked(opened[1]):
            passed.set()

    with host_disks.locked(opened[0]):
        threading.Thread(target=make, daemon=True).start()
        assert passed.wait(20)


def test_in_one_directory_one_file_is_made_at_a_time(opened: list[int]) -> None:
    order, began = [], threading.Event()

    def make() -> None:
        began.set()
        with host_disks.locked(opened[2]):
            order.append("second")

    second = threading.Thread(target=make)
    with host_disks.locked(opened[0]):
        second.start()
        began.wait()
        os.sched_yield()
        order.append("first")
    second.join()
    assert order == ["first", "second"]


def test_directory_locks_are_dropped_after_use(opened: list[int]) -> None:
    for each in opened:
        with host_disks.locked(each):
            assert len(host_disks._turns) == 1
    assert not host_disks._turns
