"""A cached directory is whole or absent."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.testbed import build, caching, layout, progress


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path / "state"))


def test_a_failed_build_leaves_nothing_and_the_next_one_succeeds(tmp_path: Path) -> None:
    wanted = tmp_path / "cache" / "tool-1"

    def fail(directory: Path) -> None:
        (directory / "half").touch()
        raise progress.StepFailed("out of disk")

    with pytest.raises(progress.StepFailed, match="out of disk"):
        caching.once(wanted, "Build tool", fail)
    assert not wanted.exists()
    caching.once(wanted, "Build tool", lambda directory: (directory / "whole").touch())

    assert [path.name for path in wanted.iterdir()] == ["whole"]
    assert [path.name for path in wanted.parent.iterdir() if path.is_dir()] == ["tool-1"]


def test_two_callers_at_once_build_once(tmp_path: Path) -> None:
    builds: list[Path] = []

    def make(directory: Path) -> None:
        builds.append(directory)
        time.sleep(0.2)

    callers = [threading.Thread(target=caching.once, args=(tmp_path / "tool-1", "Build tool", make)) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert len(builds) == 1


def test_every_go_tool_has_its_module_and_its_sums() -> None:
    for program in build.PROGRAMS.values():
        if isinstance(program, build.GoProgram):
            assert (program.sources() / "go.mod").exists()
            needs_modules = "require" in (program.sources() / "go.mod").read_text()
            assert (program.sources() / "go.sum").exists() == needs_modules


def test_nodes_have_addresses_of_their_own() -> None:
    assert len({node.address for node in layout.NODES}) == len({node.pod_cidrs for node in layout.NODES}) == len(layout.NODES)
