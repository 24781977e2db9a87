from __future__ import annotations

import pytest

from apiserver.apis.virt.spec.probes import Probe
from handler.probes.tally import UNKNOWN, Outcome, Tally, Verdict, counted, interrupted

GOOD, BAD, NOBODY = Outcome(succeeded=True), Outcome(succeeded=False, message="bad"), Outcome(None)


def after(*outcomes: Outcome, success: int = 1, failure: int = 3) -> Tally:
    probe, tally = Probe("tcpSocket", 80, success_threshold=success, failure_threshold=failure), Tally()
    for outcome in outcomes:
        tally = counted(tally, probe, outcome)
    return tally


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ((), None),
        ((GOOD,), True),
        ((BAD, BAD), None),
        ((BAD, BAD, BAD), False),
        ((GOOD, BAD, BAD), True),
        ((GOOD, BAD, BAD, BAD), False),
        ((GOOD, BAD, BAD, GOOD, BAD, BAD), True),
        ((BAD, BAD, BAD, GOOD), True),
        ((BAD, BAD, NOBODY), None),
        ((BAD, BAD, NOBODY, BAD), False),
    ],
)
def test_thresholds_count_what_comes_in_a_row(outcomes: tuple[Outcome, ...], verdict: bool | None) -> None:
    assert after(*outcomes).verdict is verdict


def test_several_successes_may_be_needed() -> None:
    assert after(GOOD, success=2).verdict is None
    assert after(GOOD, BAD, GOOD, success=2).verdict is None
    assert after(GOOD, GOOD, success=2).verdict is True
    assert after(BAD, GOOD, success=2, failure=1).verdict is False


def test_the_reason_is_that_of_the_moment_at_which_it_failed() -> None:
    told = after(BAD, Outcome(succeeded=False, message="worse"), Outcome(succeeded=False, message="later"), failure=2)
    assert (told.verdict, told.message) == (False, "worse")
    assert after(BAD, GOOD, failure=1).message == ""


def test_new_failure_message_replaces_the_old_at_the_threshold() -> None:
    worse, later = (Outcome(succeeded=False, message=message) for message in ("worse", "later"))

    assert after(BAD, BAD, worse, failure=2).message == "bad"
    assert after(BAD, BAD, worse, worse, failure=2).message == "worse"
    assert after(BAD, BAD, worse, later, worse, later, failure=2).message == "bad"
    assert after(BAD, BAD, worse, NOBODY, worse, failure=2).message == "worse"
    assert after(BAD, worse, failure=1).message == "worse"
    assert after(BAD, BAD, BAD, BAD, worse, worse, worse, failure=4).message == "bad"
    assert after(BAD, BAD, worse, GOOD, worse, success=2, failure=2).message == "bad"
    assert after(BAD, BAD, worse, GOOD, worse, worse, success=2, failure=2).message == "worse"


def test_interruption_keeps_the_verdict_and_resets_the_count() -> None:
    assert interrupted(after(GOOD, BAD, BAD)) == Tally(verdict=True)
    assert interrupted(after(BAD, failure=1)) == Tally(verdict=False, message="bad")


def test_verdicts_are_compared_by_what_they_say() -> None:
    assert Verdict() == UNKNOWN
    assert Verdict(ready=False, message="bad") == Verdict(ready=False, message="bad") != Verdict(ready=False, message="worse")
