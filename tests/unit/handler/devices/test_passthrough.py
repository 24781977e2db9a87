from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from apiserver.apis.virt.places import layout
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
    assert list(passthrough._children(1, tmp_path)) == [2, 3, 4]  # 4 has ended


def test_deep_process_trees_are_searched_within_a_limit(tmp_path: Path) -> None:
    for pid in range(1, 2000):
        _process(tmp_path, pid, pid + 1)
    assert len(list(passthrough._children(1, tmp_path))) == passthrough.MAX_PROCESSES


def test_wide_process_trees_are_searched_within_a_limit(tmp_path: Path) -> None:
    _process(tmp_path, 1, *range(2, 5000))
    assert list(passthrough._children(1, tmp_path)) == list(range(2, 2 + passthrough.MAX_PROCESSES))


@pytest.mark.parametrize(
    ("limit", "wanted", "left"),
    [(5, 10, 10), (10, 5, 10), (10, 10, 10), (resource.RLIM_INFINITY, 10, resource.RLIM_INFINITY)],
)
def test_a_limit_is_never_lowered(limit: int, wanted: int, left: int) -> None:
    assert passthrough._higher(limit, wanted) == left


def test_the_limits_of_another_users_process_stay(caplog: pytest.LogCaptureFixture) -> None:
    assert os.getuid() != layout.USER_ID
    with subprocess.Popen(["sleep", "60"]) as process:
        resource.prlimit(process.pid, resource.RLIMIT_MEMLOCK, (0, 0))
        passthrough.allow_locking(process.pid, 1 << 40)
        limits = resource.prlimit(process.pid, resource.RLIMIT_MEMLOCK)
        process.kill()
    assert limits == (0, 0)
    assert caplog.records == []


def test_few_of_the_groups_of_a_pod_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "dev/vfio").mkdir(parents=True)
    for name in ("vfio", "1234567", "x", *map(str, range(100, 100 + 2 * passthrough.MAX_GROUPS))):
        (tmp_path / "dev/vfio" / name).touch()
    root = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    try:
        found = [each.path for each in passthrough.groups(root)]
    finally:
        os.close(root)
    assert found == [f"/dev/vfio/{number}" for number in range(100, 100 + passthrough.MAX_GROUPS)]
