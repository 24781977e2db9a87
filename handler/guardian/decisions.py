"""What the guardian of a node decides. Pure: times are seconds of CLOCK_BOOTTIME."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from apiserver.apis.meta import errors
from apiserver.apis.virt import guards
from apiserver.apis.virt.guards import Times

NEVER: Final = float("-inf")
SENDING: Final = float("inf")


@dataclass(frozen=True, slots=True)
class State:
    """The guardian's knowledge of its requests; times are seconds of CLOCK_BOOTTIME.

    ``confirmed`` (None: no promise), ``attested`` and ``tried``: when requests were sent; ``sent``: when the last write ended that may be
    written.
    """

    confirmed: float | None = None
    """When the last confirmed renewal was sent. None: this guardian has promised nothing."""
    attested: float | None = None
    """When the requests were sent that a majority of voters answered with "I am cut off as well"."""
    sent: float = NEVER
    """When the last write ended that may be written; SENDING during a write. A write that the API server refused does not count."""
    tried: float = NEVER
    """When the last write was sent, also a refused one."""
    unanswered: int = 0
    """Writes without an answer since the last confirmed one."""
    proven: bool = False
    """The last write, without a promise, was confirmed, so a promise can follow."""
    resolved: bool = False
    """The API server answered the last request, so the version of the Lease is known."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A step: read this guardian's Lease."""


@dataclass(frozen=True, slots=True)
class Renew:
    """A step: write this guardian's Lease; this also removes a seal."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A step: send nothing, and decide again after these seconds."""

    seconds: float


Step: TypeAlias = Probe | Renew | Wait
PROBE_SECONDS: Final = 1.0
SEALED_LOOK_SECONDS: Final = 0.2
HOLD_AFTER: Final = 2
"""So many writes without an answer, each after an answered read, and writes pause."""
HOLD_SECONDS: Final = 60.0
LAST_SECONDS: Final = 4.0
_REFUSALS: Final = (
    errors.BadRequest,
    errors.Unauthorized,
    errors.Forbidden,
    errors.NotFound,
    errors.MethodNotAllowed,
    errors.RequestEntityTooLarge,
    errors.UnsupportedMediaType,
    errors.Invalid,
    errors.TooManyRequests,
)
"""Not Conflict: an earlier write of this guardian may be the reason."""


def next_step(state: State, now: float, times: Times, *, sealed: bool, ended: bool) -> Step:
    """Return the next step. After a request without an answer, the guardian only reads, until a read is answered.

    ``sealed``: virt-controller sealed the Lease; then it is renewed only once ``ended``: no process of the pods that it lists runs.
    """
    if not state.resolved:
        return Probe()
    if sealed:
        return Renew() if ended else Wait(SEALED_LOOK_SECONDS)
    left = _next_write(state, now, times) - now
    return Wait(left) if left > 0 and not state.proven else Renew()


def _next_write(state: State, now: float, times: Times) -> float:
    """Return when to write. Writes that fail between answered reads pause, because a voter that sends cannot attest.

    Before the deadline there is one last try.
    """
    due = state.tried + times.renew
    if state.unanswered < HOLD_AFTER:
        return due
    held, until = state.tried + HOLD_SECONDS, deadline(state, times)
    return held if until is None or now >= until else max(due, min(held, until - LAST_SECONDS))


def sending(state: State, now: float) -> State:
    """Return the state while a write of the Lease is sent, from this time."""
    return replace(state, sent=SENDING, tried=now)


def unanswered(state: State, now: float) -> State:
    """Return the state after a write that ended now without a definite answer."""
    return replace(state, sent=now, unanswered=state.unanswered + 1)


def refused(state: State, before: State) -> State:
    """Return the state after a refused write, which cannot be written later. ``before``: the state before it was sent.

    A promise that began with this write is dropped; an older one keeps its deadline.
    """
    found = replace(state, sent=before.sent, proven=False)
    return found if before.confirmed is not None else replace(found, confirmed=None, attested=None)


def written(state: State, now: float) -> State:
    """Return the state after a write that ended now was confirmed; it extends no promise, :func:`confirmed` does."""
    return replace(state, sent=now, unanswered=0)


def is_refusal(error: BaseException) -> bool:
    """Return whether the API server surely refused a write before it reached the storage; False for a Conflict."""
    return isinstance(error, _REFUSALS)


def confirmed(state: State, sent: float) -> State:
    """Return the state once a renewal sent at this time is known to be written. An older one never shortens the promise."""
    return replace(state, confirmed=sent if state.confirmed is None else max(state.confirmed, sent))


def attested(state: State, asked: float) -> State:
    """Return the state after a majority answered requests of this time with an attestation."""
    return replace(state, attested=asked if state.attested is None else max(state.attested, asked))


def deadline(state: State, times: Times) -> float | None:
    """Return when the node's guests end at the latest, in seconds of CLOCK_BOOTTIME; None without a promise."""
    if state.confirmed is None:
        return None
    return max(state.confirmed, NEVER if state.attested is None else state.attested) + times.promise


def may_attest(state: State, now: float, times: Times) -> bool:
    """Return whether this voter may state that it is cut off: for ``Times.cut_off`` seconds, it sent no renewal that may be written."""
    return now - state.sent >= times.cut_off


def asks(state: State, now: float, times: Times) -> bool:
    """Return whether to ask the voters: there is a promise, and no renewal sent in the last ``Times.cut_off`` seconds is confirmed."""
    return state.confirmed is not None and now - state.confirmed >= times.cut_off


def is_attested(attesting: Collection[str], voters: Iterable[Collection[str]]) -> bool:
    """Return whether a majority of each set of voters attests; False without a set, or for one of fewer than three.

    ``voters``: the sets in the renewals that may be written.
    """
    found = tuple(voters)
    return bool(found) and all(guards.majority(attesting, each) for each in found)


@dataclass(frozen=True, slots=True)
class Seen:
    """Pods with processes of guests, and when each was last seen."""

    at: dict[str, float] = field(default_factory=dict)


REMEMBERED_SECONDS: Final = 600.0
"""How long a pod without processes stays listed: its kubelet may be unable to report its end."""


def seen(before: Seen, pods: Iterable[str], now: float) -> Seen:
    """Return the pods to list: those seen in the last ``REMEMBERED_SECONDS``, at most the newest ``MAX_PODS``. ``pods``: seen now."""
    kept = {uid: at for uid, at in before.at.items() if now - at < REMEMBERED_SECONDS}
    newest = sorted({**kept, **dict.fromkeys(pods, now)}.items(), key=lambda item: -item[1])
    return Seen(dict(newest[: guards.MAX_PODS]))
