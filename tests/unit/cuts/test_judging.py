from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cuts import client, judging
from tests.cuts.description import Expected
from tests.cuts.judging import Failure, Guest, Sample, Seen

SOURCE, TARGET = 10, 20
CUT = 3.0


def looks(seconds: float, *, until: float = 99.0, since: float = 99.0, counter: float = 5.0) -> list[Sample]:
    """Return five samples per second of a guest in the source until ``until``, in the target from ``since`` on; ``counter``: its rate."""
    times = [number / 5 for number in range(int(seconds * 5))]
    return [Sample(at, int(at * counter), {SOURCE: min(at, until) * 0.3, TARGET: max(0.0, at - since) * 0.3}) for at in times]


GOOD = Guest(name="mover", samples=looks(10), lost=(), boots=1, counts=True, phase="Succeeded", seconds=4.0)
SEEN = Seen(expected=Expected.MOVES, cut_at=CUT, over=10.0, guests=[GOOD], step_seen="", operation_seconds=4.0)


def of(guest: Guest, expected: Expected = Expected.MOVES) -> list[str]:
    return judging.faults(replace(SEEN, guests=[guest], expected=expected))


def test_a_guest_that_moves_and_counts_on_is_good() -> None:
    assert judging.faults(SEEN) == []
    assert of(replace(GOOD, samples=looks(10, until=5, since=6))) == []


def test_a_guest_that_runs_in_two_places_at_once_is_seen() -> None:
    (fault,) = of(replace(GOOD, samples=looks(10, until=8, since=4)))
    assert fault.startswith("mover: ran two: QEMU 10 and 20 within ")


def test_paused_guest_in_the_other_place_does_not_count() -> None:
    paused = [replace(each, processors={**each.processors, TARGET: 0.5}) for each in looks(10)]
    assert of(replace(GOOD, samples=paused)) == []


def test_looks_that_cannot_see_a_guest_run_say_so() -> None:
    blind = [replace(each, processors={SOURCE: 1.0}) for each in looks(10)]
    assert of(replace(GOOD, samples=blind)) == ["mover: unseen: no QEMU was seen to run before the cut"]
    assert of(replace(GOOD, samples=[])) == ["mover: unseen: no QEMU was seen to run before the cut"]


def test_numbers_that_are_gone_are_lost_data() -> None:
    assert of(replace(GOOD, lost=(17, 18))) == ["mover: lost data: 2 numbers that were written, from 17 on"]


def test_a_counter_that_goes_back_is_lost_data() -> None:
    back = [*looks(5), *(replace(each, at=each.at + 5, counter=each.counter) for each in looks(5))]
    assert "mover: lost data: its counter went back" in of(replace(GOOD, samples=back))


@pytest.mark.parametrize(
    ("guest", "fault"),
    [
        (replace(GOOD, counts=False), "mover: hung: it does not count any more"),
        (replace(GOOD, phase="Running", seconds=None), "mover: hung: its Migration is still Running"),
    ],
)
def test_hanging_is_a_fault_under_every_expectation(guest: Guest, fault: str) -> None:
    for expected in Expected:
        assert fault in of(guest, expected)


def test_an_operation_that_is_not_over_hangs() -> None:
    assert "hung: the operation was not over in time" in judging.faults(replace(SEEN, operation_seconds=None))


def test_a_step_that_was_missed_is_no_result() -> None:
    assert judging.faults(replace(SEEN, step_seen="the phase was Running")) == ["missed: the phase was Running"]


def test_required_outcome_is_the_cases() -> None:
    failed, anew = replace(GOOD, phase="Failed", message="it broke"), replace(GOOD, boots=2)
    assert of(failed) == ["mover: did not move: its Migration is Failed (it broke)"]
    assert of(failed, Expected.MOVES_OR_STAYS) == []
    assert of(anew) == of(anew, Expected.MOVES_OR_STAYS) == ["mover: restarted"]
    assert of(replace(anew, phase="Failed"), Expected.RESTARTS) == []


@pytest.mark.parametrize("is_undisturbed", [True, False])
def test_foreign_answer_is_a_fault_of_every_case(is_undisturbed: bool) -> None:
    failures = [Failure(4.0, f"{client.ANOTHER}: b'nginx'"), Failure(4.2, "TimeoutError"), Failure(4.4, f"{client.ANOTHER}: b'apache'")]
    found = judging.faults(replace(SEEN, failures=failures, is_undisturbed=is_undisturbed))
    assert found == ["client: 2 answers were not the guest's: another answer: b'nginx'"]


def test_a_service_that_does_not_answer_again_hangs() -> None:
    assert judging.faults(replace(SEEN, is_answered=False)) == ["client: hung: the Service does not answer any more"]


@pytest.mark.parametrize("words", sorted(client.NOBODY))
def test_refused_connection_is_a_fault_when_nothing_is_cut(words: str) -> None:
    seen = replace(SEEN, failures=[Failure(3.5, words), Failure(3.6, words)])
    assert judging.faults(seen) == []
    assert judging.faults(replace(seen, is_undisturbed=True)) == [
        f"client: 2 connections led to nobody, the first 0.5 s from the cut on: {words}"
    ]


def test_delayed_or_broken_connections_during_a_move_are_allowed() -> None:
    failures = [Failure(3.5, "TimeoutError"), Failure(3.6, "ECONNRESET"), Failure(3.7, client.CUT_OFF)]
    assert judging.faults(replace(SEEN, failures=failures, is_undisturbed=True)) == []


def test_silence_longer_than_the_downtime_is_a_fault() -> None:
    still = [replace(each, counter=min(each.counter, 15) if each.at < 5 else each.counter) for each in looks(30)]
    stop = judging.longest_stop(still, CUT)
    assert stop == pytest.approx(2.0)
    seen = replace(SEEN, guests=[replace(GOOD, samples=still)], over=30.0, answers=[16.0, 28.0], is_undisturbed=True)
    assert judging.faults(replace(seen, answers=[14.9, 16.0, 27.9])) == []
    assert judging.faults(replace(seen, answers=[14.9, 27.0])) == ["client: no answer for 12.1 s, and the guest stood still for 2.0 s"]
    assert judging.faults(replace(seen, answers=[14.9, 27.0], is_undisturbed=False)) == []


def test_the_longest_silence_is_between_answers_or_at_an_end() -> None:
    assert judging.longest_silence([1.0, 2.5, 7.0, 7.5], 2.0, 8.0) == 4.5
    assert judging.longest_silence([1.0], 2.0, 8.0) == 6.0


def test_the_longest_stop_is_between_numbers_from_the_cut_on() -> None:
    samples = [Sample(at, counter, {}) for at, counter in ((0.0, 1), (1.0, 2), (2.0, 2), (3.0, 2), (6.0, 3), (7.0, 4))]
    assert judging.longest_stop(samples, 2.0) == 4.0
    assert judging.longest_stop(samples, 5.0) == 1.0
