from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.main.disks import file_sizes
from launcher.main.disks.files import DiskUnusable, NoRoom
from tests import system_calls

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path, pod_directories: Callable[..., None]) -> Path:
    pod_directories(DISKS=tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path / "data/disk.img"


def specification(size: str | None = None, **fields: Any) -> dict[str, Any]:
    source = {"name": "c", **({"create": {"size": size}} if size else {})}
    return {"devices": {"disks": [{"name": "data", "type": "PersistentVolumeClaim", "source": source, **fields}]}}


@pytest.mark.parametrize(
    ("size", "unit", "grown"),
    [(1_000_000, 4096, 1_003_520), (1_000_000, 1, 1_000_000), (4096, 4096, 4096), (4097, 512, 4608), (0, 4096, 0)],
)
def test_a_disk_ends_with_a_whole_unit_of_its_file_system(disk: Path, size: int, unit: int, grown: int) -> None:
    disk.write_bytes(b"x" * size)
    file_sizes.prepare(specification(), lambda _: unit)
    assert disk.read_bytes() == b"x" * size + bytes(grown - size)


@pytest.mark.parametrize(("before", "after"), [(MIB, 3 * MIB), (3 * MIB, 3 * MIB), (4 * MIB, 4 * MIB)], ids=["smaller", "equal", "larger"])
def test_existing_disk_grows_to_the_requested_size_only(disk: Path, before: int, after: int) -> None:
    disk.write_bytes(b"x" * before)
    file_sizes.prepare(specification("3Mi"))
    assert disk.read_bytes() == b"x" * before + bytes(after - before)
    assert disk.stat().st_blocks * 512 <= before + 4096


def test_a_new_size_is_durable(disk: Path) -> None:
    disk.write_bytes(bytes(MIB))
    synced: list[int] = []
    with system_calls.at(os.fsync, lambda: synced.append(disk.stat().st_size)):
        file_sizes.prepare(specification("3Mi"))
    assert synced == [3 * MIB]


@pytest.mark.parametrize("fields", [{"readOnly": True}, {"source": {"name": "c", "ephemeral": True, "sizeLimit": "1Gi"}}], ids=str)
def test_a_disk_that_the_guest_does_not_write_stays_as_it_is(disk: Path, fields: dict[str, Any]) -> None:
    disk.write_bytes(b"x" * 100)
    file_sizes.prepare(specification("3Mi", **fields), lambda _: 4096)
    assert disk.stat().st_size == 100


def test_files_outside_the_claim_are_left_alone(disk: Path, tmp_path: Path) -> None:
    file_sizes.prepare(specification("3Mi"))
    assert not disk.exists()
    (tmp_path / "elsewhere").write_bytes(b"mine")
    disk.symlink_to(tmp_path / "elsewhere")
    file_sizes.prepare(specification("3Mi"))
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"
    disk.unlink()
    os.mkfifo(disk)
    file_sizes.prepare(specification("3Mi"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_disk_without_room_to_grow_waits_and_says_so(disk: Path, number: int) -> None:
    disk.write_bytes(bytes(MIB))
    with system_calls.refused(os.ftruncate, number), pytest.raises(NoRoom, match=r"source\.create\.size is 3Mi, its file has 1Mi"):
        file_sizes.prepare(specification("3Mi"))
    with pytest.raises(NoRoom, match="no space to grow it"):
        file_sizes.prepare(specification("1Ei"))
    assert disk.stat().st_size == MIB


def test_a_file_of_another_user_is_named_with_its_owner_and_mode(disk: Path) -> None:
    disk.write_bytes(b"")
    disk.chmod(0o600)
    owner = rf"^disk 'data': disk\.img belongs to uid {os.geteuid()} and gid \d+ with mode 0600, and virt-launcher is uid \d+: Permission"
    with system_calls.refused(os.open, errno.EACCES), pytest.raises(DiskUnusable, match=owner):
        file_sizes.prepare(specification())
    with system_calls.refused(os.open, errno.EROFS), pytest.raises(DiskUnusable, match="its volume is read-only; set readOnly"):
        file_sizes.prepare(specification())


@pytest.mark.parametrize("unit", [512, 1024, 2048, 4096])
def test_the_unit_of_a_file_is_the_smallest_that_reads(disk: Path, unit: int) -> None:
    disk.write_bytes(b"x" * 8192)
    assert file_sizes.alignment(disk, lambda _, page, length: length >= unit and page[0] == 0) == unit


def test_sparse_file_gives_the_default_alignment(disk: Path) -> None:
    disk.write_bytes(b"x" * 8192)
    assert file_sizes.alignment(disk, lambda *_: True) == 4096
    assert file_sizes.alignment(disk, lambda *_: False) == 4096
    assert file_sizes.alignment(disk.parent / "absent", lambda *_: True) == 1
