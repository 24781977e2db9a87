from __future__ import annotations

from pathlib import Path

import pytest

from tests.testbed import typecheck


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "mypy"


def a_tree(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


def checked(tree: Path, kept: Path, script: str) -> int:
    return typecheck.run(tree, kept, ("sh", "-c", script))


def test_a_new_tree_begins_with_the_cache_of_another(tmp_path: Path, kept: Path) -> None:
    assert checked(a_tree(tmp_path, "one"), kept, "mkdir -p .mypy_cache/3.11; echo known >.mypy_cache/3.11/db") == 0
    assert checked(a_tree(tmp_path, "two"), kept, "grep -q known .mypy_cache/3.11/db") == 0


def test_a_tree_keeps_its_own_cache(tmp_path: Path, kept: Path) -> None:
    tree = a_tree(tmp_path, "one")
    checked(tree, kept, "mkdir .mypy_cache; echo first >.mypy_cache/db")
    checked(a_tree(tmp_path, "two"), kept, "echo another one >.mypy_cache/db")
    assert (kept / "db").read_text() == "another one\n"
    assert checked(tree, kept, "grep -q first .mypy_cache/db") == 0
    assert (kept / "db").read_text() == "first\n"


def test_a_failure_is_told_and_its_cache_not_kept(tmp_path: Path, kept: Path) -> None:
    assert checked(a_tree(tmp_path, "one"), kept, "mkdir .mypy_cache; echo half >.mypy_cache/db; exit 2") == 2
    assert not kept.exists()


def test_an_interrupted_copy_is_replaced(tmp_path: Path, kept: Path) -> None:
    leftover = kept.with_name(".mypy.new")
    leftover.mkdir(parents=True)
    (leftover / "stray").touch()
    checked(a_tree(tmp_path, "one"), kept, "mkdir .mypy_cache; touch .mypy_cache/db")
    assert [path.name for path in kept.iterdir()] == ["db"]
    assert not leftover.exists()
