from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.main.disks import mounted
from launcher.main.disks.mounted import Unreadable
from tests import system_calls
from tests.mounted import mount


def test_the_values_are_read_as_the_kubelet_lays_them_out(tmp_path: Path) -> None:
    mount(tmp_path, {"b": b"2", "a": b"", ".hidden": b"\xff"})
    assert mounted.read(tmp_path) == {"a": b"", "b": b"2", ".hidden": b"\xff"}
    mount(tmp_path, {"c": b"3"})
    assert mounted.read(tmp_path) == {"c": b"3"}


def test_a_change_is_noticed(tmp_path: Path) -> None:
    assert mounted.version(tmp_path) == ""
    mount(tmp_path, {"a": b"1"})
    first = mounted.version(tmp_path)
    assert first == mounted.version(tmp_path) != ""
    mount(tmp_path, {"a": b"1"})
    assert mounted.version(tmp_path) != first


def test_unmounted_volume_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="it is not mounted"):
        mounted.read(tmp_path)


@pytest.mark.parametrize("target", ["/etc", "..", "../secret", "a/.."])
def test_nothing_outside_of_the_volume_is_read(tmp_path: Path, target: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume/..data").symlink_to(target)
    with pytest.raises(Unreadable, match="outside of its volume"):
        mounted.read(tmp_path / "volume")


def test_a_directory_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to("/etc")
    (tmp_path / "..data").symlink_to("other")
    with pytest.raises(Unreadable):
        mounted.read(tmp_path)


def test_a_value_that_is_a_link_or_no_file_is_not_read(tmp_path: Path) -> None:
    mount(tmp_path, {"a": b"1"})
    (tmp_path / "..data/b").symlink_to("/etc/passwd")
    with pytest.raises(Unreadable):
        mounted.read(tmp_path)
    (tmp_path / "..data/b").unlink()
    os.mkfifo(tmp_path / "..data/b")
    with pytest.raises(Unreadable, match="'b' is not a regular file"):
        mounted.read(tmp_path)


def test_sizes_are_bounded(tmp_path: Path) -> None:
    mount(tmp_path, {"a": b"123", "b": b"45"})
    assert mounted.read(tmp_path, limit=5, count=2) == {"a": b"123", "b": b"45"}
    with pytest.raises(Unreadable, match="larger than Kubernetes allows"):
        mounted.read(tmp_path, limit=4)
    with pytest.raises(Unreadable, match="it has 2 keys, more than 1"):
        mounted.read(tmp_path, count=1)


def test_of_a_value_no_more_is_read_than_may_be_there(tmp_path: Path) -> None:
    mount(tmp_path, {"a": b""})
    os.truncate(tmp_path / "..data/a", 1 << 40)
    with pytest.raises(Unreadable, match="larger than Kubernetes allows"):
        mounted.read(tmp_path)


def test_volume_changed_during_reading_is_read_again(tmp_path: Path) -> None:
    mount(tmp_path, {"a": b"1"})
    left = [b"2", b"3", b"4", b"5"]

    def meanwhile() -> None:
        if left:
            mount(tmp_path, {"a": left.pop(0)})

    with system_calls.at(os.readlink, meanwhile, system_calls.RETURNED):
        assert mounted.read(tmp_path) == {"a": b"5"}
    assert left == []


def test_no_descriptor_is_left_open_whatever_comes_of_it(tmp_path: Path) -> None:
    mount(tmp_path, {"a": b"1", "b": b"2"})
    before = len(list(Path("/proc/self/fd").iterdir()))
    mounted.read(tmp_path)
    for limit, count in ((1, 2), (9, 1)):
        with pytest.raises(Unreadable):
            mounted.read(tmp_path, limit=limit, count=count)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
