from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.cuts import outcomes
from tests.cuts.description import Expected, chosen
from tests.cuts.judging import Guest, Sample, Seen

CUT = 10.0
SAMPLES = [Sample(at / 5, at, {7: at / 5}) for at in range(100)]
MOVED = Guest(name="mover", samples=SAMPLES, lost=(), boots=1, counts=True, phase="Succeeded", seconds=4.0)
SEEN = Seen(
    expected=Expected.MOVES,
    cut_at=CUT,
    over=15.5,
    guests=[MOVED],
    step_seen="",
    operation_seconds=4.2,
    answers=[9.0, 10.5, 13.0, 14.0, 15.0],
)
(CASE,) = chosen("migration.etcd.Running")


def text(seen: Seen) -> str:
    return outcomes.outcome(CASE, seen, "abc1234").text


def test_cell_shows_the_outcome_and_both_outages() -> None:
    assert text(SEEN) == "Succeeded 4 s; 0.2/2.5"


def test_a_cell_says_what_was_unusual() -> None:
    anew = replace(MOVED, boots=2, phase="Failed", attempts=3)
    assert text(replace(SEEN, guests=[anew])) == "Failed (attempt 3), restarted 4 s; 0.2/2.5"
    assert text(replace(SEEN, guests=[MOVED, MOVED], repeated=1)) == "2 Succeeded, kubectl drain called 2 times 4 s; 0.2/2.5"
    assert text(replace(SEEN, operation_seconds=None)) == "Succeeded hung; 0.2/2.5"


def test_stored_outcome_is_read_back(tmp_path: Path) -> None:
    directory = tmp_path / "faults"
    found = outcomes.outcome(CASE, replace(SEEN, operation_seconds=None), "abc1234")
    assert found.faults == ("hung: the operation was not over in time",)
    outcomes.write(found, directory)
    assert outcomes.kept([CASE], directory) == {CASE.name: found}
    outcomes.forget([CASE], directory)
    assert outcomes.kept([CASE], directory) == {}
