from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from importer import device
from importer.failures import ImportFailed
from tests import system_calls

MIB = 1 << 20
IMAGE = b"boot".ljust(3 * MIB, b"x") + bytes(device.PIECE)


class PowerFailure(Exception):
    """Raised by a test to end a try of an import."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "device"
    found.write_bytes(bytes(MIB) + b"former".ljust(4 * MIB, b"y"))
    return found


def write(path: Path, pwrite: Callable[[int, memoryview, int], int] = os.pwrite) -> None:
    with device.Device(path, pwrite) as disk:
        disk.lock()
        disk.begin()
        disk.write(IMAGE)
        disk.finish()


def failing_after(writes: int) -> Callable[[int, memoryview, int], int]:
    left = [writes]

    def pwrite(file: int, data: memoryview, offset: int) -> int:
        if not left[0]:
            raise PowerFailure
        left[0] -= 1
        return os.pwrite(file, data[: device.SECTOR], offset)

    return pwrite


def test_an_import_that_ends_at_any_moment_is_done_again(path: Path) -> None:
    sectors = len(IMAGE) // device.SECTOR + 1
    write(path, failing_after(sectors))
    assert device.has_disk(path)
    for writes in (1, 2, 3 * MIB // device.SECTOR, sectors - MIB // device.SECTOR, sectors - 2, sectors - 1):
        path.write_bytes(bytes(5 * MIB))
        with pytest.raises(PowerFailure):
            write(path, failing_after(writes))
        assert not device.has_disk(path), writes
    write(path)
    assert path.read_bytes().startswith(IMAGE)


def test_first_sector_follows_a_durable_rest(path: Path) -> None:
    rest, seen = slice(device.SECTOR, len(IMAGE)), list[tuple[bool, bool]]()
    with system_calls.at(os.fsync, lambda: seen.append((device.has_disk(path), path.read_bytes()[rest] == IMAGE[rest]))):
        write(path)
    assert seen == [(False, False), (False, True), (True, True)]


def test_single_writer_holds_the_lock(path: Path) -> None:
    with device.Device(path) as first, device.Device(path) as second:
        first.lock()
        with pytest.raises(ImportFailed, match="is running"):
            second.lock()
