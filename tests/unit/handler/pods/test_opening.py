"""What a pod can put in the place of a file that virt-handler reads; ``tests/host/handler/test_ownership.py`` has the devices."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.pods import opening, places


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    descriptor = opening.open_directory(str(tmp_path))
    yield descriptor
    os.close(descriptor)


def test_a_regular_file_is_read_up_to_the_limit_also_through_a_link_within_the_root(tmp_path: Path, root: int) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("/file")
    assert opening.read_file(root, "file", 4) == b"0123"
    assert opening.read_file(root, "link", 99) == b"0123456789"


def test_a_link_does_not_leave_the_root(tmp_path: Path, root: int) -> None:
    (tmp_path / "absolute").symlink_to("/etc/passwd")
    (tmp_path / "upwards").symlink_to("../../../../../../etc/passwd")
    for name in ("absolute", "upwards"):
        with pytest.raises(FileNotFoundError):
            opening.read_file(root, name, 99)


def test_nothing_but_a_regular_file_is_read(tmp_path: Path, root: int) -> None:
    """A pipe would keep its reader waiting for a writer, for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("pipe", "directory", "socket"):
            with pytest.raises(OSError, match="not a regular file"):
                opening.read_file(root, name, 99)


@pytest.mark.parametrize("path", ["file\x00/../x", "\x00", "half \ud800"], ids=ascii)
def test_what_is_no_path_is_refused_and_not_cut_short(tmp_path: Path, root: int, path: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(OSError, match="Invalid argument"):
        opening.openat2(root, path, os.O_PATH, resolve=opening.NO_SYMLINKS)


@pytest.mark.parametrize("uid", ["../../x", "..", "", "a/b", "a\x00", "a\n", "x" * 64, "é"], ids=ascii)
def test_what_is_no_uid_becomes_no_path(tmp_path: Path, uid: str) -> None:
    assert not places.is_uid(uid)
    with pytest.raises(ValueError, match="no uid of a pod"), places.run_directory(uid, tmp_path):
        pass


@pytest.mark.parametrize("value", [None, 7, ["x"], {}], ids=repr)
def test_what_is_no_text_is_no_uid(value: object) -> None:
    assert not places.is_uid(value)


def test_a_socket_is_reached_through_no_link(tmp_path: Path, root: int) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "own.sock"))
        listener.listen()
        places.connect(root, "own.sock").close()
        (tmp_path / "link.sock").symlink_to("own.sock")
        (tmp_path / "dir").symlink_to(".")
        for name in ("link.sock", "dir/own.sock"):
            with pytest.raises(OSError, match=r"symbolic links|non-socket"):
                places.connect(root, name)
