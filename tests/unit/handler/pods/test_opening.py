"""Paths cannot leave a pod's directory; ``tests/host/handler/test_ownership.py`` covers devices."""

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


@pytest.mark.parametrize("path", ["file\x00/../x", "\x00", "half \ud800"], ids=ascii)
def test_invalid_paths_are_refused_and_not_truncated(tmp_path: Path, root: int, path: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(OSError, match="Invalid argument"):
        opening.openat2(root, path, os.O_PATH, resolve=opening.NO_SYMLINKS)


@pytest.mark.parametrize("uid", ["../../x", "..", "", "a/b", "a\x00", "a\n", "x" * 64, "é"], ids=ascii)
def test_invalid_uid_becomes_no_path(tmp_path: Path, uid: str) -> None:
    assert not places.is_uid(uid)
    with pytest.raises(ValueError, match="not a pod uid"), places.run_directory(uid, tmp_path):
        pass


@pytest.mark.parametrize("value", [None, 7, ["x"], {}], ids=repr)
def test_values_of_wrong_type_are_no_uid(value: object) -> None:
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
