"""A model of the guardian: a promise of a node that its guests end, and a seal before a restart elsewhere.

The model takes its decisions with the code of virt-controller (``controller.sealing.seal_plan``) and of the guardian
(``handler.guardian.decisions``); only a weaker protocol replaces one of them. Two nodes and a controller. Node A has the guest. X is the
voter that belongs to both majorities: that which lets A extend its promise, and that which lets the controller seal. Y is always fresh and
attests nothing; A always attests for itself. Time passes in ticks of a second; ages stop counting once a greater age means the same. B's
guest starts at the seal. The one bad state has both guests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple

from apiserver.apis.virt import guards
from apiserver.apis.virt.guards import Promise, Times
from controller.sealing import seal_plan
from controller.sealing.seal_plan import Watch
from handler.guardian import decisions

NONE: Final = -1
VOTERS: Final = ("A", "X", "Y")
SMALL: Final = Times(promise=5, kill=1, cut_off=4, fresh=2, read=1, read_limit=0, wait=8)
"""``guards.faults`` finds nothing in these times."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """The rules of fencing, with times in ticks, and faults (``stale_reads``, ``pauses``). A weaker protocol breaks a rule."""

    times: Times = field(default=SMALL)
    compares_versions: bool = True
    """The seal is refused if the Lease changed since it was read."""
    counts_from_send: bool = True
    """The promise counts from the send of a renewal, not from its answer."""
    echoes: bool = True
    """Freshness counts from the beat that X's renewal echoes, not from its commit."""
    needs_fresh_voters: bool = True
    """X must be fresh throughout the wait."""
    attests_only_when_silent: bool = True
    needs_majority_to_attest: bool = True
    """A extends its promise only if a majority attests."""
    stale_reads: bool = False
    """The controller may read an old version of A's Lease."""
    pauses: bool = False
    """A's hypervisor may pause A, whose clocks stand still."""
    voter_pauses: bool = False
    """The same for X. Its clock does not run ahead later."""


class State(NamedTuple):
    """A state of the model: A with its guest, another voter X, the controller, and their messages. Ages are in ticks."""

    guest: bool = True
    restarted: bool = False
    promised: int = 0
    """Age of A's last confirmed renewal, from its send, or of the last attestation to A: the younger one."""
    renewal: int = NONE
    """Age of the renewal of A without an answer that is or will be written: of several, at most one is."""
    committed: bool = False
    """That renewal is written."""
    changed: bool = False
    """A's Lease changed since the controller read it."""
    sent: int = 0
    """Age of X's last send."""
    pending: int = NONE
    """Age of X's send that is not written yet. It may be written at any later time."""
    beat: int = 0
    """Age of the send behind X's newest written renewal."""
    fresh_for: int = 0
    """q, at the last read; NONE: X was not fresh."""
    unchanged_for: int = 0
    """o, at the last read."""
    unread: int = 0
    """Ticks since the last read."""


@dataclass(frozen=True, slots=True)
class Result:
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
    if protocol.voter_pauses:
        for reads in (False, True):
            yield "a tick, and X is paused", _tick(state, protocol, reads=reads)._replace(sent=state.sent)


def _node_a(state: State, protocol: Protocol) -> Iterator[tuple[str, State]]:
    if state.committed:
        age = state.renewal if protocol.counts_from_send else 0
        promised = _promised(state.promised, protocol.times, confirmed=age)
        yield "A gets the answer", state._replace(promised=promised, renewal=NONE, committed=False)
        return
    yield "A sends a renewal, and this one will be written", state._replace(renewal=0)
    if state.renewal != NONE:
        yield "A's renewal is written", state._replace(committed=True, changed=True)


@cache
def _promised(before: int, times: Times, *, confirmed: int | None = None, attested: bool = False) -> int:
    """Return the new age of A's promise, so far ``before``: A learned that a renewal of age ``confirmed`` was written, or was attested."""
    state = decisions.State(confirmed=float(-before))
    state = state if confirmed is None else decisions.confirmed(state, float(-confirmed))
    until = decisions.deadline(decisions.attested(state, 0.0) if attested else state, times)
    assert until is not None
    return _age(until - times.promise)


@cache
def _lives(promised: int, times: Times) -> bool:
    until = decisions.deadline(decisions.State(confirmed=float(-promised)), times)
    return until is not None and until + times.kill > 0


@cache
def _attests(sent: int, protocol: Protocol) -> bool:
    """Return whether A extends its promise, after X sent its last renewal ``sent`` ticks ago."""
    may = decisions.may_attest(decisions.State(sent=float(-sent)), 0.0, protocol.times) or not protocol.attests_only_when_silent
    return decisions.is_attested({"A", "X"} if may else {"A"}, (VOTERS,)) or not protocol.needs_majority_to_attest


def _age(at: float) -> int:
    return int(-at)


def _voter_x(state: State, protocol: Protocol) -> Iterator[tuple[str, State]]:
    yield "X sends a renewal, and this one will be written", state._replace(sent=0, pending=0)
    if state.pending != NONE:
        yield "X sends a renewal, and the one before will be written", state._replace(sent=0)
        yield "X's renewal is written", state._replace(pending=NONE, beat=state.pending if protocol.echoes else 0)
    if _attests(state.sent, protocol):
        yield "a majority attests to A", state._replace(promised=_promised(state.promised, protocol.times, attested=True))


def _watch(unchanged_for: int, fresh_for: int, unread: int) -> Watch:
    read_at = float(-unread)
    return Watch("seen", read_at - unchanged_for, None if fresh_for == NONE else read_at - fresh_for, read_at)


def _may_seal(state: State, protocol: Protocol) -> bool:
    return not (protocol.compares_versions and state.changed) and _has_waited(state.unchanged_for, state.fresh_for, protocol)


@cache
def _has_waited(unchanged_for: int, fresh_for: int, protocol: Protocol) -> bool:
    watch = _watch(unchanged_for, fresh_for if protocol.needs_fresh_voters else unchanged_for, 0)
    return seal_plan.may_seal(watch, protocol.times)


@cache
def _read(unchanged_for: int, fresh_for: int, unread: int, beat: int, times: Times, *, notices: bool) -> tuple[int, int]:
    """Return the new ``unchanged_for`` and ``fresh_for`` after the controller read both Leases, one tick later."""
    promises = {"X": Promise(beats={"C": "x"}), "Y": Promise(beats={"C": "y"})}
    fresh = seal_plan.fresh_voters(promises, {"x": float(-beat), "y": 0.0}, "C", 0.0, times)
    before = _watch(unchanged_for, fresh_for, unread + 1)
    watch = seal_plan.observe(before, "new" if notices else "seen", 0.0, times, fresh=guards.majority(fresh, VOTERS))
    longest = int(times.wait)
    return min(_age(watch.unchanged_since), longest), NONE if watch.fresh_since is None else min(_age(watch.fresh_since), longest)


def _tick(state: State, protocol: Protocol, *, reads: bool, stale: bool = False, paused: bool = False) -> State:
    times = protocol.times
    ends, stale_beat = int(times.promise + times.kill), int(times.fresh) + 1
    promised = state.promised if paused else min(state.promised + 1, ends)
    beat = min(state.beat + 1, stale_beat)
    unchanged_for, fresh_for, unread = state.unchanged_for, state.fresh_for, min(state.unread + 1, int(times.read + times.read_limit))
    if reads:
        notices = state.changed and not stale
        unchanged_for, fresh_for = _read(unchanged_for, fresh_for, state.unread, beat, times, notices=notices)
        unread = 0
    return state._replace(
        guest=_lives(promised, times),
        promised=promised,
        renewal=state.renewal if state.renewal == NONE else min(state.renewal + 1, ends),
        changed=state.changed and not (reads and not stale),
        sent=min(state.sent + 1, int(times.cut_off)),
        pending=state.pending if state.pending == NONE else min(state.pending + 1, stale_beat),
        beat=beat,
        fresh_for=fresh_for,
        unchanged_for=unchanged_for,
        unread=unread,
    )
