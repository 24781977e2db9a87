from __future__ import annotations

import pytest

from tests.models.fencing import Protocol, explore

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    ("protocol", "states"), [(Protocol(), 405_219), (Protocol(silence=3), 0), (Protocol(wait=6), 0)], ids=["as proposed", "D=F+1", "W=T+K"]
)
def test_no_reachable_state_has_two_guests(protocol: Protocol, states: int) -> None:
    result = explore(protocol)
    assert result.counterexample == ()
    assert result.states == states or (not states and result.states > 100_000), "the exploration is not cut short"


WEAKER = {
    "the promise counts from the answer": Protocol(counts_from_send=False),
    "freshness counts from the commit": Protocol(echoes=False),
    "no fresh voters are needed": Protocol(needs_fresh_voters=False),
    "voters attest at any time": Protocol(attests_only_when_silent=False),
    "D=F": Protocol(silence=2),
    "W=T": Protocol(wait=5),
    "a seal over stale reads without a comparison": Protocol(compares_versions=False, stale_reads=True),
    "a paused node": Protocol(pauses=True),
}


@pytest.mark.parametrize("protocol", WEAKER.values(), ids=WEAKER)
def test_each_weaker_protocol_runs_two_guests(protocol: Protocol) -> None:
    assert explore(protocol).counterexample[-1] == "the controller seals, and B starts"
