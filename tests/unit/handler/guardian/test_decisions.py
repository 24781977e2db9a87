from __future__ import annotations

import pytest

from apiserver.apis.virt import guards
from handler.guardian import decisions
from handler.guardian.decisions import Probe, Renew, State, Wait

TIMES = guards.DEFAULT
KNOWN = State(confirmed=100.0, sent=100.0, answered=100.5, resolved=True)


@pytest.mark.parametrize(
    ("state", "sealed", "ended", "step"),
    [
        (State(), False, False, Probe()),
        (State(resolved=True), False, False, Renew()),
        (KNOWN, False, False, Wait(2.0)),
        (State(confirmed=100.0, sent=98.0, resolved=True), False, False, Renew()),
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
    for state in (State(sent=100.0), State(answered=100.0), State(sent=90.0, answered=100.0)):
        assert not decisions.may_attest(state, 120.9, TIMES)
        assert decisions.may_attest(state, 121.0, TIMES)
    assert not decisions.asks(State(answered=100.0), 200.0, TIMES)
    assert not decisions.asks(KNOWN, 121.4, TIMES)
    assert decisions.asks(KNOWN, 121.5, TIMES)


def test_both_sets_of_voters_must_attest() -> None:
    old, new = ("a", "b", "c"), ("c", "d", "e")
    assert decisions.is_attested({"a", "c"}, [old])
    assert not decisions.is_attested({"a", "c"}, [old, new])
    assert decisions.is_attested({"a", "c", "d"}, [old, new])
    assert not decisions.is_attested({"a"}, [("a",)])
    assert not decisions.is_attested({"a"}, [])


def test_a_pod_without_processes_stays_listed_for_minutes() -> None:
    seen = decisions.seen(decisions.Seen(), ["a", "b"], 0.0)
    seen = decisions.seen(seen, ["b"], 599.0)
    assert set(seen.at) == {"a", "b"}
    assert set(decisions.seen(seen, ["b"], 601.0).at) == {"b"}
    many = decisions.seen(seen, [str(each) for each in range(guards.MAX_PODS)], 600.0)
    assert len(many.at) == guards.MAX_PODS
    assert "a" not in many.at
