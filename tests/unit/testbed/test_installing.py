from __future__ import annotations

from pathlib import Path

import pytest

from tests.testbed import installing, progress

UV = '#!/bin/sh\necho "$@" >>{directory}/calls\ncase "$*" in *--offline*) exit {offline};; *) exit {online};; esac\n'


def calls(directory: Path, *, offline: int, online: int) -> list[str]:
    program = directory / "uv"
    program.write_text(UV.format(directory=directory, offline=offline, online=online))
    program.chmod(0o755)
    try:
        installing.run("--requirement", "pins.txt", program=program)
    finally:
        found = [line.split()[-1] for line in (directory / "calls").read_text().splitlines()]
    return found


@pytest.mark.parametrize(("offline", "found"), [(0, ["--offline"]), (1, ["--offline", "pins.txt"])])
def test_the_index_is_asked_for_what_the_cache_lacks(tmp_path: Path, offline: int, found: list[str]) -> None:
    assert calls(tmp_path, offline=offline, online=0) == found


def test_a_failure_at_the_index_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path / "state"))
    with pytest.raises(progress.StepFailed):
        calls(tmp_path, offline=1, online=1)
