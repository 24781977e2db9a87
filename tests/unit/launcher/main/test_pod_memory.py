from __future__ import annotations

from pathlib import Path

import pytest

from launcher.main.programs import pod_memory

MIB = 1 << 20


def put(directory: Path, **files: object) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name.replace("__", ".")).write_text(f"{content}\n")


def stat(**pages: int) -> str:
    return "\n".join(f"{name} {size}" for name, size in {"anon": 7, "file": 9, **pages}.items())


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


@pytest.mark.parametrize("place", ["", "kubepods/pod1/c1"], ids=["a namespace", "the node's path, mounted at the container's"])
def test_version_2(tmp_path: Path, own: Path, place: str) -> None:
    own.write_text(f"0::/{place}\n")
    put(tmp_path / "fs", memory__max=300 * MIB, memory__current=280 * MIB, memory__stat=stat(inactive_file=10 * MIB, active_file=5 * MIB))
    assert pod_memory.available(tmp_path / "fs", own) == 35 * MIB


def test_version_1_where_the_nodes_tree_is_seen(tmp_path: Path, own: Path) -> None:
    own.write_text("5:cpu,cpuacct:/other\n4:memory:/pod1/c1\n")
    pages = stat(inactive_file=MIB, total_inactive_file=2 * MIB, total_active_file=MIB)
    put(tmp_path / "fs/memory", memory__limit_in_bytes=9 * MIB, memory__usage_in_bytes=MIB, memory__stat=stat())
    put(tmp_path / "fs/memory/pod1/c1", memory__limit_in_bytes=200 * MIB, memory__usage_in_bytes=150 * MIB, memory__stat=pages)
    assert pod_memory.available(tmp_path / "fs", own) == 53 * MIB


def test_both_versions_side_by_side_have_the_limit_in_the_first(tmp_path: Path, own: Path) -> None:
    own.write_text("4:memory:/\n0::/\n")
    put(tmp_path / "fs/memory", memory__limit_in_bytes=200 * MIB, memory__usage_in_bytes=150 * MIB, memory__stat=stat())
    assert pod_memory.available(tmp_path / "fs", own) == 50 * MIB


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        ("0::/\n", {"memory__max": "max", "memory__current": 1, "memory__stat": ""}),
        ("0::/\n", {"memory__max": 1, "memory__current": "?", "memory__stat": ""}),
        ("0::/\n", {"memory__max": 1, "memory__current": 1}),
        ("0::/\n", {}),
        ("0::relative\n", {}),
        ("nonsense\n", {}),
        ("", {}),
    ],
    ids=["no limit", "no number", "no pages", "no files", "a relative path", "no line of cgroups", "nothing"],
)
def test_unreadable_memory_limits_give_none(tmp_path: Path, own: Path, cgroup: str, files: dict[str, object]) -> None:
    own.write_text(cgroup)
    put(tmp_path / "fs", **files)
    assert pod_memory.available(tmp_path / "fs", own) is None


def test_a_system_without_cgroups(tmp_path: Path) -> None:
    assert pod_memory.available(tmp_path / "fs", tmp_path / "none") is None
    assert not pod_memory.was_lacking(tmp_path / "fs", tmp_path / "none")


def test_cgroup_paths_with_colons_are_parsed(tmp_path: Path, own: Path) -> None:
    own.write_text("4:hugetlb,memory:/kubepods.slice:cri-containerd:c1\n")
    put(
        tmp_path / "fs/memory/kubepods.slice:cri-containerd:c1",
        memory__limit_in_bytes=200 * MIB,
        memory__usage_in_bytes=150 * MIB,
        memory__stat=stat(),
    )
    put(tmp_path / "fs/memory", memory__limit_in_bytes=900 * MIB, memory__usage_in_bytes=MIB, memory__stat=stat())
    assert pod_memory.available(tmp_path / "fs", own) == 50 * MIB


@pytest.mark.parametrize(
    ("cgroup", "place", "limit", "kills"),
    [("0::/\n", "fs", "memory.max", "memory.events"), ("4:memory:/c1\n", "fs/memory/c1", "memory.limit_in_bytes", "memory.oom_control")],
    ids=["version 2", "version 1"],
)
@pytest.mark.parametrize(
    ("counters", "lacked"),
    [
        ("oom 3\noom_kill 1\noom_group_kill 0", True),
        ("oom 3\noom_kill 0\noom_group_kill 1", False),
        ("oom 1", False),
        ("oom_kill ?", False),
    ],
)
def test_killed_processes_are_counted(
    tmp_path: Path, own: Path, cgroup: str, place: str, limit: str, kills: str, counters: str, *, lacked: bool
) -> None:
    own.write_text(cgroup)
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / limit).touch()
    assert not pod_memory.was_lacking(tmp_path / "fs", own)
    (tmp_path / place / kills).write_text(f"{counters}\n")
    assert pod_memory.was_lacking(tmp_path / "fs", own) == lacked
