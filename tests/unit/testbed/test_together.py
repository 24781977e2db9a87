from __future__ import annotations

from pathlib import Path

import pytest

from tests.testbed import together


def test_all_run_at_once_and_each_is_shown_in_one_piece(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = f"echo first; touch {tmp_path}/first; until test -e {tmp_path}/second; do sleep 0.05; done; echo of two"
    second = f"echo second; touch {tmp_path}/second; until test -e {tmp_path}/first; do sleep 0.05; done"
    assert together.run([first, second, "echo last"]) == 0
    printed = capfd.readouterr().out
    assert f"$ {first}\nfirst\nof two\n" in printed
    assert f"$ {second}\nsecond\n" in printed
    assert "last\n" in printed


@pytest.mark.parametrize(
    ("commands", "status"),
    [(["exit 3", "true"], 3), (["true", "exit 4"], 4), (["kill -TERM $$", "true"], 143), (["exit 5", "exit 6"], 5)],
)
def test_a_failure_of_any_is_told(commands: list[str], status: int) -> None:
    assert together.run(commands) == status


def test_the_others_go_on_after_a_failure(tmp_path: Path) -> None:
    assert together.run([f"sleep 0.3; touch {tmp_path}/done", "exit 1"]) == 1
    assert (tmp_path / "done").exists()
