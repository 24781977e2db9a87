from __future__ import annotations

import pathlib
import threading

import pytest

from tests.testbed import caching, progress


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path / "state"))
    return tmp_path / "cache" / "tool-1"


def test_second_process_waits_and_builds_nothing(wanted: pathlib.Path) -> None:
    begun, may_end, made = threading.Event(), threading.Event(), []

    def make(directory: pathlib.Path) -> None:
        made.append(directory)
        begun.set()
        assert may_end.wait(20)
        (directory / "whole").touch()

    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append((caching.once(wanted, "tool", make) / "whole").exists())) for _ in range(3)]
    threads[0].start()
    assert begun.wait(20)
    for each in threads[1:]:
        each.start()
        each.join(0.1)
    assert not wanted.exists()
    may_end.set()
    for each in threads:
        each.join(20)
    assert found == [True] * 3
    assert len(made) == 1
    assert wanted.stat().st_mode & 0o777 == 0o755


def test_failed_or_killed_build_leaves_nothing(wanted: pathlib.Path) -> None:
    def fail(directory: pathlib.Path) -> None:
        (directory / "half").touch()
        raise RuntimeError("killed")

    with pytest.raises(progress.StepFailed, match="killed"):
        caching.once(wanted, "tool", fail)
    assert not wanted.exists()
    assert caching.once(wanted, "tool", lambda directory: (directory / "whole").touch()) == wanted
    assert [each.name for each in wanted.iterdir()] == ["whole"]
    assert sorted(each.name for each in wanted.parent.iterdir()) == [".tool-1.lock", "tool-1"]
