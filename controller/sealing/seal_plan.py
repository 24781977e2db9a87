"""Decides when a guardian's Lease may be sealed. Pure: times are seconds of CLOCK_BOOTTIME."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from apiserver.apis.virt import guards
from apiserver.apis.virt.guards import Promise, Times

SEAL_REFUSED: Final = "SealRefused"
VIRTUAL_NODE: Final = "VirtualNode"


@dataclass(frozen=True, slots=True)
class Watch:
    """What this process saw of one Lease."""

    version: str
    unchanged_since: float
    """o: the end of the read that first showed this version."""
    fresh_since: float | None
    """q: since when a majority of this version's voters was fresh at every read: ``unchanged_since`` or later. None: not at the last."""
    read_at: float


def observe(before: Watch | None, version: str, now: float, times: Times, *, fresh: bool) -> Watch:
    """Return what is known after a read that ended ``now``; a missed read resets ``fresh_since``.

    ``fresh``: a majority of the Lease's voters is in :func:`fresh_voters`.
    """
    if before is None or before.version != version:
        return Watch(version, now, now if fresh else None, now)
    missed = now - before.read_at > times.read + times.read_limit
    since = now if before.fresh_since is None or missed else before.fresh_since
    return Watch(version, before.unchanged_since, since if fresh else None, now)


def fresh_voters(promises: Mapping[str, Promise], sent: Mapping[str, float], own: str, now: float, times: Times) -> frozenset[str]:
    """Return the guardians that sent a renewal in the last ``Times.fresh`` seconds, by the beat of this replica (``own``) that they echo.

    ``sent`` has the time when this replica began to write each beat: a guardian read the beat, and then sent its renewal, after that.
    """
    echoed = {name: sent.get(each.beats.get(own, "")) for name, each in promises.items() if each.virtual or not each.withdrawn}
    return frozenset(name for name, at in echoed.items() if at is not None and now - at <= times.fresh)


def may_seal(watch: Watch, times: Times) -> bool:
    """Return whether the Lease did not change, and a majority of its voters was fresh at every read, for ``Times.wait`` before the last."""
    return watch.fresh_since is not None and watch.read_at - watch.fresh_since >= times.wait


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing to do now: the Lease changed recently, its promise is withdrawn, or its voters are not fresh long enough."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The guardian is unreachable, and its Lease is not sealed. ``reason``: of the Event."""

    message: str
    reason: str = SEAL_REFUSED


@dataclass(frozen=True, slots=True)
class Seal:
    """Seal the Lease of an unreachable guardian, if the node's kubelet is also unreachable."""


Decision: TypeAlias = Nothing | Refuse | Seal


def plan(watch: Watch, promise: Promise, fresh: frozenset[str], times: Times, *, allowed: bool = True) -> Decision:
    """Return what to do with an unsealed Lease with this promise: Nothing, Seal, or Refuse, such as if too few voters are in ``fresh``.

    ``allowed``: this replica may seal. If not, it refuses only once another one would have sealed.
    """
    unchanged = watch.read_at - watch.unchanged_since
    if unchanged < times.wait:
        return Nothing()
    if promise.virtual:
        return Refuse("promises nothing on a virtual machine, which may be paused", VIRTUAL_NODE)
    if promise.withdrawn:
        return Nothing()
    if not guards.majority(fresh, promise.voters):
        return Refuse(_too_few(promise, fresh))
    if not may_seal(watch, times):
        return Nothing()
    if allowed:
        return Seal()
    told = "virt-controller runs on a virtual machine, which may be paused"
    return Refuse(told, VIRTUAL_NODE) if unchanged >= 2 * times.wait else Nothing()


def _too_few(promise: Promise, fresh: frozenset[str]) -> str:
    voters = sorted(set(promise.voters))
    if len(voters) < guards.MIN_VOTERS:
        return f"its guardian names {len(voters)} voters, and at least {guards.MIN_VOTERS} are needed (guardian.voters)"
    there = [each for each in voters if each in fresh]
    return f"only {len(there)} of the {len(voters)} voters ({', '.join(voters)}) report, less than a majority"
