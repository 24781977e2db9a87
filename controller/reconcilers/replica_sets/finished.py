"""Finished machines of a set: which ones are over for good, when they are replaced, and when they are deleted. Pure.

A finished machine keeps its place in the set for a pause, which doubles with each further one of the last ten minutes. So a
template that cannot run costs a bounded number of machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.backoff import pause_seconds
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import structure
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import phases, power

FIRST_PAUSE_SECONDS: Final = 10
LONGEST_PAUSE_SECONDS: Final = 300
KEPT: Final = timedelta(minutes=10)
"""From a machine's end to its deletion; the longest pause is shorter."""
_FOR_GOOD: Final = power.OFF_REASONS - power.ASKED_TO_BE_OFF


@dataclass(frozen=True, slots=True)
class Finished:
    """A set's finished machines that keep their places (``waiting``) or are to be deleted (``expired``); others are in neither."""

    waiting: tuple[Object, ...] = ()
    expired: tuple[Object, ...] = ()
    next_change: datetime | None = None


def is_finished(vm: Object) -> bool:
    """Return whether a machine is off, will not start again by itself, and no user switched it off."""
    if phases.phase_of(vm) not in phases.ENDED or structure.of_virtual_machine(vm):
        return False
    decision = power.decide(vm)
    return not decision.on and decision.reason in _FOR_GOOD


def by_age(machines: Sequence[Object], now: datetime) -> Finished:
    """Return which of these finished machines keep their places, which to delete, and when this changes next."""
    ends = [(min(_end_of(vm, now), now), vm) for vm in machines]
    recent = sum(1 for end, _ in ends if now - end < KEPT)
    pause = timedelta(seconds=pause_seconds(recent, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS))
    changes = [end + after for end, _ in ends for after in (pause, KEPT) if end + after > now]
    return Finished(
        waiting=tuple(vm for end, vm in ends if now - end < pause),
        expired=tuple(vm for end, vm in ends if now - end >= KEPT),
        next_change=min(changes, default=None),
    )


def _end_of(vm: Object, now: datetime) -> datetime:
    found = power.newest_attempt(vm).get("endTime") or dig_vm(vm, "metadata", "creationTimestamp")
    return times.parsed(found) or now
