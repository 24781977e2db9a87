"""The processes of a launcher that may lock memory, as hostile as they can be."""

from __future__ import annotations

from pathlib import Path

from handler.devices import passthrough


def _process(proc: Path, pid: int, *children: int) -> Path:
    listed = proc / str(pid) / "task" / str(pid) / "children"
    listed.parent.mkdir(parents=True)
    listed.write_text(" ".join(map(str, children)))
    return listed


def test_the_nearest_processes_below_a_launcher_are_found_first(tmp_path: Path) -> None:
    _process(tmp_path, 1, 2, 3)
    _process(tmp_path, 2, 4)
    _process(tmp_path, 3)
    assert list(passthrough._children(1, tmp_path)) == [2, 3, 4]  # 4 has gone


def test_a_launcher_that_starts_process_below_process_keeps_nobody_looking(tmp_path: Path) -> None:
    for pid in range(1, 2000):
        _process(tmp_path, pid, pid + 1)
    assert len(list(passthrough._children(1, tmp_path))) == passthrough.MAX_PROCESSES


def test_a_launcher_with_very_many_children_keeps_nobody_looking(tmp_path: Path) -> None:
    _process(tmp_path, 1, *range(2, 5000))
    assert list(passthrough._children(1, tmp_path)) == list(range(2, 2 + passthrough.MAX_PROCESSES))
