"""A model of the proposed guardian: a promise of a node that its guests end, and a seal before a restart elsewhere.

Two nodes and a controller. Node A has the guest. X is the voter that belongs to both majorities: that which lets A extend its promise, and
that which lets the controller seal. All other voters are always fresh and attest nothing, which favours neither side. Time passes in ticks;
ages stop counting once a greater age means the same. B's guest starts at the seal. The one bad state has both guests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

NEVER: Final = 99
NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Protocol:
    """Times in ticks, and rules. A weaker protocol breaks one of them."""

    promise: int = 5
    """T: the guest ends so long after the send of the last confirmed renewal, or the last attestation."""
    kill: int = 1
    """K: time to kill the guest and verify that."""
    silence: int = 4
    """D: X may attest that it is cut off too if it sent nothing for so long."""
    fresh: int = 2
    """F: X is fresh if the send behind its newest renewal is at most so old."""
    wait: int = 8
    """W: how long the controller watches an unchanged Lease, and fresh voters."""
    compares_versions: bool = True
    """The seal is refused if the Lease changed since it was read."""
    counts_from_send: bool = True
    """The promise counts from the send of a renewal, not from its answer."""
    echoes: bool = True
    """Freshness counts from the send of X's renewal, not from its commit."""
    needs_fresh_voters: bool = True
    """X must be fresh throughout the wait."""
    attests_only_when_silent: bool = True
    stale_reads: bool = False
    """The controller may read an old version of A's Lease."""
    pauses: bool = False
    """A's hypervisor may pause A, whose clocks stand still."""


class State(NamedTuple):
    """All processes and messages. Ages are in ticks."""

    guest: bool = True
    """A's guest can write."""
    restarted: bool = False
    """B's guest can write."""
    confirmed: int = 0
    """Age of A's last confirmed renewal, from its send."""
    attested: int = NEVER
    """Age of X's last attestation to A."""
    renewal: int = NONE
    """Age of A's renewal without an answer."""
    committed: bool = False
    """A's renewal without an answer is written."""
    changed: bool = False
    """A's Lease changed since the controller read it."""
    sent: int = 0
    """Age of X's last send."""
    pending: int = NONE
    """Age of X's send that is not written yet. It may be written at any later time."""
    beat: int = 0
    """Age of the send behind X's newest written renewal."""
    seen_beat: int = 0
    """The same, as the controller read it."""
    fresh_for: int = 0
    """q: how long X has been fresh at every read."""
    unchanged_for: int = 0
    """o: how long A's Lease has not changed."""


@dataclass(frozen=True, slots=True)
class Result:
    """All reachable states, and the shortest way to the bad one, if any."""

    states: int
    counterexample: tuple[str, ...] = ()


def explore(protocol: Protocol) -> Result:
    start = State()
    came_from: dict[State, tuple[State, str] | None] = {start: None}
    todo = deque([start])
    while todo:
        state = todo.popleft()
        if state.guest and state.restarted:
            return Result(len(came_from), tuple(_way(state, came_from)))
        if state.restarted or not state.guest:
            continue
        for step, following in _steps(state, protocol):
            if following not in came_from:
                came_from[following] = (state, step)
                todo.append(following)
    return Result(len(came_from))


def _way(state: State, came_from: dict[State, tuple[State, str] | None]) -> list[str]:
    steps: list[str] = []
    while (before := came_from[state]) is not None:
        state, step = before
        steps.insert(0, step)
    return steps


def _steps(state: State, protocol: Protocol) -> Iterator[tuple[str, State]]:
    yield from _node_a(state, protocol)
    yield from _voter_x(state, protocol)
    if _may_seal(state, protocol):
        yield "the controller seals, and B starts", state._replace(restarted=True)
    yield "a tick", _tick(state, protocol, reads=False)
    yield "a tick, and the controller reads", _tick(state, protocol, reads=True)
    if protocol.stale_reads:
        yield "a tick, and the controller reads an old Lease of A", _tick(state, protocol, reads=True, stale=True)
    if protocol.pauses:
        yield "a tick, and A is paused", _tick(state, protocol, reads=True, paused=True)


def _node_a(state: State, protocol: Protocol) -> Iterator[tuple[str, State]]:
    if state.renewal == NONE:
        yield "A sends a renewal", state._replace(renewal=0, committed=False)
    elif not state.committed:
        yield "A's renewal is written", state._replace(committed=True, changed=True)
    else:
        age = state.renewal if protocol.counts_from_send else 0
        yield "A gets the answer", state._replace(confirmed=min(state.confirmed, age), renewal=NONE, committed=False)


def _voter_x(state: State, protocol: Protocol) -> Iterator[tuple[str, State]]:
    if state.pending == NONE:
        yield "X sends a renewal", state._replace(sent=0, pending=0)
    else:
        yield "X's renewal is written", state._replace(pending=NONE, beat=state.pending if protocol.echoes else 0)
    if state.sent >= protocol.silence or not protocol.attests_only_when_silent:
        yield "X attests to A", state._replace(attested=0)


def _may_seal(state: State, protocol: Protocol) -> bool:
    waited = state.unchanged_for >= protocol.wait
    fresh = state.fresh_for >= protocol.wait or not protocol.needs_fresh_voters
    return waited and fresh and not (protocol.compares_versions and state.changed)


def _tick(state: State, protocol: Protocol, *, reads: bool, stale: bool = False, paused: bool = False) -> State:
    ends, longest, oldest = protocol.promise + protocol.kill, protocol.wait + 1, max(protocol.silence, protocol.fresh) + 1
    confirmed, attested = state.confirmed, state.attested
    if not paused:
        confirmed, attested = min(confirmed + 1, ends), attested if attested == NEVER else min(attested + 1, ends)
    beat = min(state.beat + 1, oldest)
    seen_beat = beat if reads else min(state.seen_beat + 1, oldest)
    notices = reads and not stale and state.changed
    return state._replace(
        guest=confirmed < ends or (attested != NEVER and attested < ends),
        confirmed=confirmed,
        attested=attested,
        renewal=state.renewal if state.renewal == NONE else min(state.renewal + 1, ends),
        changed=state.changed and not (reads and not stale),
        sent=min(state.sent + 1, oldest),
        pending=state.pending if state.pending == NONE else min(state.pending + 1, oldest),
        beat=beat,
        seen_beat=seen_beat,
        fresh_for=min(state.fresh_for + 1, longest) if seen_beat <= protocol.fresh else 0,
        unchanged_for=0 if notices else min(state.unchanged_for + 1, longest),
    )
