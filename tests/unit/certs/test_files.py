from __future__ import annotations

import os
from pathlib import Path

from certs import files
from tests import system_calls


def test_published_files_look_like_a_secret_volume(tmp_path: Path) -> None:
    files.publish(tmp_path, {"tls.crt": b"one", "tls.key": b"1"})
    files.publish(tmp_path, {"tls.crt": b"two", "tls.key": b"2"})

    assert (tmp_path / "tls.crt").read_bytes() == b"two"
    assert (tmp_path / "tls.key").read_bytes() == b"2"
    assert (tmp_path / "..data").is_symlink()
    assert (tmp_path / "tls.crt").readlink() == Path("..data/tls.crt")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(
        ["..data", "tls.crt", "tls.key", (tmp_path / "..data").readlink().name]
    )


def test_a_crash_before_the_swap_leaves_the_old_set(tmp_path: Path) -> None:
    files.publish(tmp_path, {"tls.crt": b"one", "tls.key": b"1"})

    system_calls.killed_at(os.rename, lambda: files.publish(tmp_path, {"tls.crt": b"two", "tls.key": b"2"}))

    assert ((tmp_path / "tls.crt").read_bytes(), (tmp_path / "tls.key").read_bytes()) == (b"one", b"1")
    files.publish(tmp_path, {"tls.crt": b"three", "tls.key": b"3"})
    assert len(list(tmp_path.iterdir())) == 4


def test_unpublished_names_vanish_and_strange_files_stay(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    files.publish(tmp_path, {"tls.crt": b"1", "ca.crt": b"c"})
    files.publish(tmp_path, {"tls.crt": b"2"})

    assert (tmp_path / "mine").exists()
    assert not (tmp_path / "ca.crt").is_symlink()


def test_a_single_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"old")
    path.chmod(0o644)

    files.write_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_single_file_is_durable_under_its_name(tmp_path: Path) -> None:
    seen = list[dict[str, bytes]]()
    with system_calls.at(os.fsync, lambda: seen.append({each.name: each.read_bytes() for each in tmp_path.iterdir()})):
        files.write_file(tmp_path / "key", b"new")

    assert [list(each.values()) for each in seen] == [[b"new"]] * 2
    assert ["key" in each for each in seen] == [False, True]


def test_published_files_are_durable_before_the_swap(tmp_path: Path) -> None:
    seen = list[bool]()
    with system_calls.at(os.fsync, lambda: seen.append((tmp_path / files.DATA).exists())):
        files.publish(tmp_path, {"tls.crt": b"one", "tls.key": b"1"})

    assert seen == [False] * 3 + [True], "each file, their directory, and the swap"
