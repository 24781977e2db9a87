from __future__ import annotations

from dataclasses import replace

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt import guards
from handler.guardian import decisions
from handler.guardian.decisions import Probe, Renew, State, Wait

TIMES = guards.DEFAULT
KNOWN = State(confirmed=100.0, sent=100.0, tried=100.0, resolved=True)


@pytest.mark.parametrize(
    ("state", "sealed", "ended", "step"),
    [
        (State(), False, False, Probe()),
        (State(resolved=True), False, False, Renew()),
        (KNOWN, False, False, Wait(2.0)),
        (replace(KNOWN, tried=98.5), False, False, Wait(0.5)),
        (replace(KNOWN, tried=97.0), False, False, Renew()),
        (State(tried=101.0, resolved=True, proven=True), False, False, Renew()),
        (State(confirmed=100.0, sent=98.0), False, False, Probe()),
        (State(confirmed=100.0, sent=98.0, resolved=True), True, False, Wait(0.2)),
        (KNOWN, True, True, Renew()),
    ],
)
def test_next_request(state: State, sealed: bool, ended: bool, step: decisions.Step) -> None:
    assert decisions.next_step(state, 102.0, TIMES, sealed=sealed, ended=ended) == step


def test_a_deadline_counts_from_the_newest_promise() -> None:
    assert decisions.deadline(State(attested=50.0), TIMES) is None
    assert decisions.deadline(KNOWN, TIMES) == 140.0
    assert decisions.deadline(decisions.confirmed(KNOWN, 90.0), TIMES) == 140.0
    assert decisions.deadline(decisions.confirmed(KNOWN, 104.0), TIMES) == 144.0
    assert decisions.deadline(decisions.attested(decisions.attested(KNOWN, 130.0), 120.0), TIMES) == 170.0


def test_a_voter_attests_only_after_silence() -> None:
    assert not decisions.may_attest(KNOWN, 120.9, TIMES)
    assert decisions.may_attest(KNOWN, 121.0, TIMES)
    assert decisions.may_attest(KNOWN, 220.0, TIMES)
    assert not decisions.may_attest(decisions.sending(KNOWN, 100.0), 200.0, TIMES)
    assert not decisions.asks(State(sent=100.0), 200.0, TIMES)
    assert not decisions.asks(KNOWN, 120.9, TIMES)
    assert decisions.asks(KNOWN, 121.0, TIMES)
    assert decisions.asks(KNOWN, 220.0, TIMES)


def test_a_refused_write_was_not_sent() -> None:
    sent = decisions.confirmed(decisions.sending(KNOWN, 104.0), 100.0)
    assert decisions.refused(sent, KNOWN) == replace(KNOWN, tried=104.0)
    first = State(sent=90.0, proven=True)
    promised = decisions.confirmed(decisions.sending(first, 104.0), 104.0)
    assert decisions.refused(promised, first) == State(sent=90.0, tried=104.0)
    assert decisions.unanswered(decisions.unanswered(sent, 105.0), 107.0) == replace(KNOWN, sent=107.0, tried=104.0, unanswered=2)
    assert decisions.written(replace(sent, unanswered=2), 105.0) == replace(KNOWN, sent=105.0, tried=104.0)


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (errors.Forbidden("x"), True),
        (errors.NotFound("x"), True),
        (errors.Invalid("x"), True),
        (errors.TooManyRequests("x"), True),
        (errors.Conflict("x"), False),
        (errors.InternalError("x"), False),
        (errors.Timeout("x"), False),
        (TimeoutError(), False),
    ],
)
def test_which_errors_exclude_a_late_write(error: Exception, refused: bool) -> None:
    assert decisions.is_refusal(error) is refused


def test_writes_that_fail_pause_but_for_a_last_try() -> None:
    failing = replace(KNOWN, tried=108.0, unanswered=2)
    assert decisions.next_step(replace(failing, unanswered=1), 112.0, TIMES, sealed=False, ended=False) == Renew()
    for state, now, step in (
        (failing, 112.0, Wait(24.0)),
        (replace(failing, unanswered=3), 112.0, Wait(24.0)),
        (failing, 136.0, Renew()),
        (replace(failing, tried=136.0), 137.0, Wait(3.0)),
        (replace(failing, attested=130.0), 136.0, Wait(30.0)),
        (replace(failing, attested=130.0), 166.0, Renew()),
        (replace(failing, attested=160.0), 168.0, Renew()),
        (failing, 140.0, Wait(28.0)),
        (failing, 141.0, Wait(27.0)),
        (replace(failing, confirmed=None), 168.0, Renew()),
    ):
        assert decisions.next_step(state, now, TIMES, sealed=False, ended=False) == step


def test_both_sets_of_voters_must_attest() -> None:
    old, new = ("a", "b", "c"), ("c", "d", "e")
    assert decisions.is_attested({"a", "c"}, [old])
    assert not decisions.is_attested({"a", "c"}, [old, new])
    assert decisions.is_attested({"a", "c", "d"}, [old, new])
    assert not decisions.is_attested({"a"}, [("a",)])
    assert not decisions.is_attested({"a"}, [])


def test_a_pod_without_processes_stays_listed_for_minutes() -> None:
    seen = decisions.seen(decisions.Seen(), ["a", "b"], 100.0)
    seen = decisions.seen(seen, ["b"], 699.0)
    assert set(seen.at) == {"a", "b"}
    assert [set(decisions.seen(seen, ["b"], now).at) for now in (700.0, 900.0)] == [{"b"}, {"b"}]
    newest = {str(each) for each in range(guards.MAX_PODS)}
    assert set(decisions.seen(seen, newest, 699.5).at) == newest
