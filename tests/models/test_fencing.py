from __future__ import annotations

from dataclasses import replace

import pytest

from apiserver.apis.virt import guards
from tests.models.fencing import SMALL, Protocol, explore

pytestmark = pytest.mark.timeout(900)


def with_times(**changed: float) -> Protocol:
    return Protocol(replace(SMALL, **changed))


def test_no_reachable_state_has_two_guests() -> None:
    result = explore(Protocol())
    assert result.counterexample == ()
    assert result.states == 240_609, "the exploration is not cut short"


def test_a_paused_voter_attests_nothing_false() -> None:
    assert explore(Protocol(voter_pauses=True)).counterexample == ()


WEAKER = {
    "the promise counts from the answer": Protocol(counts_from_send=False),
    "freshness counts from the commit": Protocol(echoes=False),
    "no fresh voters are needed": Protocol(needs_fresh_voters=False),
    "voters attest at any time": Protocol(attests_only_when_silent=False),
    "no majority is needed to extend the promise": Protocol(needs_majority_to_attest=False),
    "D=F": with_times(cut_off=2),
    "W=T": with_times(wait=5),
    "a seal over stale reads without a comparison": Protocol(compares_versions=False, stale_reads=True),
    "a paused node": Protocol(pauses=True),
}


@pytest.mark.parametrize("protocol", WEAKER.values(), ids=WEAKER)
def test_each_weaker_protocol_runs_two_guests(protocol: Protocol) -> None:
    assert explore(protocol).counterexample[-1] == "the controller seals, and B starts"


def test_unsafe_times_are_named() -> None:
    assert guards.faults(guards.DEFAULT) == guards.faults(SMALL) == []
    for field, value in (("cut_off", 20.0), ("wait", 47.0), ("promise", 45.0), ("fresh", 17.0), ("kill", 6.0), ("read", 8.0)):
        assert guards.faults(replace(guards.DEFAULT, **{field: value})), field
