from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.main.disks import blank_disks, files
from tests import system_calls

MIB = 1 << 20


@pytest.fixture
def claim(tmp_path: Path, pod_directories: Callable[..., None]) -> Path:
    pod_directories(DISKS=tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def specification(size: str = "3Mi", *names: str, **fields: Any) -> dict[str, Any]:
    disks = [
        {"name": name, "type": "PersistentVolumeClaim", "source": {"name": "c", "create": {"size": size}}} for name in names or ("data",)
    ]
    return {"devices": {"disks": [{**each, **fields} for each in disks]}}


def test_empty_claim_gets_a_sparse_group_writable_file(claim: Path) -> None:
    before = os.umask(0)
    try:
        blank_disks.create(specification())
    finally:
        os.umask(before)
    (disk,) = claim.iterdir()
    assert (disk.name, disk.stat().st_size, disk.stat().st_blocks, disk.stat().st_mode & 0o777) == ("disk.img", 3 * MIB, 0, 0o660)


@pytest.mark.parametrize("content", [b"", b"mine", bytes(4 * MIB)], ids=["empty", "smaller", "larger"])
def test_existing_disk_is_left_unchanged(claim: Path, content: bytes) -> None:
    (claim / "disk.img").write_bytes(content)
    blank_disks.create(specification())
    assert (claim / "disk.img").read_bytes() == content
    assert [each.name for each in claim.iterdir()] == ["disk.img"]


def test_a_link_that_leads_nowhere_is_something_that_is_there(claim: Path) -> None:
    (claim / "disk.img").symlink_to("nothing")
    blank_disks.create(specification())
    assert not (claim / "nothing").exists()


def test_only_disks_that_ask_for_it_are_created(claim: Path) -> None:
    blank_disks.create({"devices": {"disks": [{"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "c"}}]}})
    blank_disks.create(specification(readOnly=True))
    assert list(claim.iterdir()) == []


@pytest.mark.parametrize("at", [os.ftruncate, os.fsync, os.link, os.unlink], ids=lambda each: each.__name__)
def test_a_start_after_one_that_was_killed_finds_no_half_disk(claim: Path, at: Callable[..., None]) -> None:
    system_calls.killed_at(at, lambda: blank_disks.create(specification()))
    assert (claim / "disk.img.new").exists()
    assert (claim / "disk.img").exists() == (at is os.unlink)
    if at is os.unlink:
        (claim / "disk.img").write_bytes(b"the guest's")

    blank_disks.create(specification())

    if at is os.unlink:
        assert (claim / "disk.img").read_bytes() == b"the guest's"
        (claim / "disk.img").unlink()  # its other name must not bring back the guest's writes
        blank_disks.create(specification())
    assert (claim / "disk.img").read_bytes() == bytes(3 * MIB)
    assert [each.name for each in claim.iterdir()] == ["disk.img"]


def test_new_disk_is_durable_under_its_name(claim: Path) -> None:
    seen = list[list[str]]()
    with system_calls.at(os.fsync, lambda: seen.append([each.name for each in claim.iterdir()])):
        blank_disks.create(specification())
    assert seen == [["disk.img.new"], ["disk.img"]]


def test_a_disk_that_another_pod_is_creating_is_waited_for(claim: Path) -> None:
    with (claim / "disk.img.new").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(files.ImagesMissing) as waiting:
            blank_disks.create(specification())
        assert waiting.value.disks == ("data",)
        assert (claim / "disk.img.new").exists()
    blank_disks.create(specification())
    assert [each.name for each in claim.iterdir()] == ["disk.img"]


def test_of_two_that_create_one_the_first_one_counts(claim: Path) -> None:
    """Another process made a disk without a lock, between our check and our link."""
    with system_calls.at(os.link, lambda: (claim / "disk.img").write_bytes(b"theirs")):
        blank_disks.create(specification())
    assert (claim / "disk.img").read_bytes() == b"theirs"
    assert [each.name for each in claim.iterdir()] == ["disk.img"]


def test_a_file_that_took_the_place_of_a_left_one_is_not_removed(claim: Path) -> None:
    """Between our open and our lock of the leftover, its owner finished and a third process began."""
    (claim / "disk.img.new").write_bytes(b"")
    third: list[Any] = []

    def meanwhile() -> None:
        if not third:
            (claim / "disk.img.new").unlink()
            third.append((claim / "disk.img.new").open("wb"))
            fcntl.flock(third[0], fcntl.LOCK_EX)

    with system_calls.at(fcntl.flock, meanwhile), pytest.raises(files.ImagesMissing):
        blank_disks.create(specification())
    assert (claim / "disk.img.new").exists()
    third[0].close()


def test_claims_with_too_little_room_are_all_named(claim: Path) -> None:
    (claim.parent / "more").mkdir()
    room = os.statvfs_result((4096, 4096, 1000, 600, 511, 0, 0, 0, 0, 255))
    with pytest.raises(files.NoRoom) as small:
        blank_disks.create(specification("2Mi", "data", "more"), file_system=lambda _directory: room)
    assert small.value.disks == ("data", "more")
    assert "disk 'data': source.create.size is 2Mi, and the storage of its claim has free space for 2000Ki: expand" in str(small.value)
    assert list(claim.iterdir()) == []
    blank_disks.create(specification("1Mi"), file_system=lambda _directory: room)
    assert (claim / "disk.img").stat().st_size == MIB


def test_the_room_of_the_claim_itself_is_asked(claim: Path) -> None:
    with pytest.raises(files.NoRoom, match="the storage of its claim has free space for"):
        blank_disks.create(specification("7Ei"))
    assert list(claim.iterdir()) == []


def test_a_file_system_that_does_not_tell_its_room_is_tried(claim: Path) -> None:
    silent = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    blank_disks.create(specification(), file_system=lambda _directory: silent)
    assert (claim / "disk.img").stat().st_size == 3 * MIB


@pytest.mark.parametrize(
    ("call", "number", "kind", "words"),
    [
        (os.ftruncate, errno.ENOSPC, files.NoRoom, "the claim is full"),
        (os.ftruncate, errno.EDQUOT, files.NoRoom, "the claim is full"),
        (os.ftruncate, errno.EFBIG, files.DiskUnusable, "its file system does not support files of that size"),
        (os.link, errno.EPERM, files.DiskUnusable, "does not support links or locks"),
        (os.open, errno.EACCES, files.DiskUnusable, f"Permission denied: user {os.geteuid()}, group {os.getegid()} cannot write"),
        (os.open, errno.EROFS, files.DiskUnusable, "Read-only file system"),
    ],
)
def test_file_system_errors_are_reported(
    claim: Path, call: Callable[..., Any], number: int, kind: type[files.DiskUnusable], words: str
) -> None:
    with pytest.raises(files.DiskUnusable, match=f"disk 'data': .*{words}") as told, system_calls.refused(call, number):
        blank_disks.create(specification())
    assert type(told.value) is kind
    assert list(claim.iterdir()) == []


def test_of_a_block_device_the_size_is_asked_and_nothing_is_made(claim: Path) -> None:
    blank_disks.create(specification("3Mi"), lambda _origin: 3 * MIB)
    with pytest.raises(files.NoRoom, match=r"source\.create\.size is 4Mi, and its block device has 3Mi"):
        blank_disks.create(specification("4Mi"), lambda _origin: 3 * MIB)
    assert list(claim.iterdir()) == []
