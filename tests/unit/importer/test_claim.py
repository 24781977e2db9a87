from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from importer import claim
from importer.failures import ImportFailed
from tests import system_calls


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    return tmp_path / claim.PARTIAL


@pytest.fixture
def file(partial: Path) -> Iterator[claim.File]:
    with claim.File(partial) as made:
        made.begin()
        made.write(b"whole")
        yield made


def without_links() -> contextlib.AbstractContextManager[None]:
    return system_calls.refused(os.link, errno.EPERM)


def test_a_link_in_its_place_is_not_followed(tmp_path: Path, partial: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"somebody's")
    partial.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        claim.File(partial)


def test_single_writer_holds_the_lock(partial: Path) -> None:
    with claim.File(partial) as first, claim.File(partial) as second:
        first.lock()
        with pytest.raises(ImportFailed, match="is running"):
            second.lock()


def test_late_opener_of_a_finished_file_may_not_write(partial: Path) -> None:
    with claim.File(partial) as late:
        partial.unlink()
        with pytest.raises(ImportFailed, match="is running"):
            late.lock()
    with claim.File(partial) as late:
        partial.rename(partial.with_name("kept"))
        partial.touch()
        with pytest.raises(ImportFailed, match="just ended"):
            late.lock()


def test_nothing_is_left_of_an_earlier_try(partial: Path) -> None:
    partial.write_bytes(b"earlier" * 2000)
    with claim.File(partial) as file:
        file.begin()
        file.write(b"later")
        assert file.grown(0) == claim.BLOCK
    assert partial.read_bytes() == b"later".ljust(claim.BLOCK, b"\0")


def test_finished_file_is_durable_under_its_name(tmp_path: Path, file: claim.File) -> None:
    seen = list[list[str]]()
    with system_calls.at(os.fsync, lambda: seen.append([each.name for each in tmp_path.iterdir()])):
        claim.finish(tmp_path, file)
    assert seen == [[claim.PARTIAL], [claim.IMAGE]]


def test_disk_created_meanwhile_is_kept_also_without_links(tmp_path: Path, file: claim.File) -> None:
    (tmp_path / claim.IMAGE).write_bytes(b"a guest's")
    with pytest.raises(claim.DiskExists):
        claim.finish(tmp_path, file)
    with pytest.raises(claim.DiskExists), without_links():
        claim.finish(tmp_path, file)
    assert (tmp_path / claim.IMAGE).read_bytes() == b"a guest's"


@pytest.mark.parametrize("links", [True, False])
def test_a_whole_disk_gets_its_name(tmp_path: Path, file: claim.File, links: bool) -> None:
    with contextlib.nullcontext() if links else without_links():
        claim.finish(tmp_path, file)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [(claim.IMAGE, b"whole")]
