from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed import processes, progress


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path / "state"))
    yield
    processes.end(processes.names(), grace_seconds=0)


def test_a_process_that_runs_with_the_same_arguments_is_kept() -> None:
    first = processes.ensure("sleeper", ["sleep", "60"])

    assert processes.ensure("sleeper", ["sleep", "60"]) == first
    assert first.is_alive()


def test_other_arguments_replace_it() -> None:
    first = processes.ensure("sleeper", ["sleep", "60"])

    second = processes.ensure("sleeper", ["sleep", "61"])

    assert second != first
    assert not first.is_alive()


def test_a_recycled_process_id_is_not_taken_for_ours() -> None:
    ours = processes.ensure("sleeper", ["sleep", "60"])

    other = processes.Identity(ours.pid, ours.start_ticks + 1)

    assert not other.is_alive()


def test_process_ignoring_termination_is_killed() -> None:
    stubborn = processes.ensure("stubborn", ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])
    time.sleep(0.1)

    processes.end(["stubborn"], grace_seconds=0.2)

    assert not stubborn.is_alive()
    assert processes.find("stubborn") is None


def test_a_missing_program_is_named() -> None:
    with pytest.raises(progress.StepFailed, match="no-such-program"):
        processes.ensure("nothing", ["no-such-program"])
