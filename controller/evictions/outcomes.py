"""Outcomes of each machine's evacuations in the last hour, in memory. An evacuation is a Migration that an eviction caused.

The pause between two evacuations is taken from here and not from the Migrations that are there: whoever owns a machine may delete them,
and by that had no pause. Every replica of virt-controller follows the same Migrations and so knows the same; one that starts knows those
that are there.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import NamespacedName, Object, dig, is_deleting, key_of, labels_of, name_of
from apiserver.apis.virt.lifecycle import evictions, phases
from controller.reconcilers.migrations import ended_drains
from controller.runtime.clock import Clock

REMEMBERED: Final = timedelta(hours=1)
MAX_ENDS: Final = 8
"""Of one machine: more than make the longest pause."""
MAX_MACHINES: Final = 10_000
"""Machines whose evacuations are remembered; beyond it those that ended first are forgotten."""
MAX_MESSAGE: Final = 256
"""Characters of why one failed."""
_IN_VAIN: Final = frozenset({phases.FAILED, phases.CANCELLED})


@dataclass(frozen=True, slots=True)
class Ended:
    """An evacuation that did not move its guest."""

    name: str
    at: datetime
    why: str = ""
    """One line of at most 256 characters; empty: nobody said."""
    is_cancelled: bool = False
    """Somebody deleted it before it was over."""


@dataclass(frozen=True, slots=True)
class History:
    """Of one machine, whatever pods it was in."""

    in_vain: tuple[Ended, ...] = ()
    """Since the guest was last moved, in the order in which they ended, at most eight."""
    moved: datetime | None = None
    """Time at which an evacuation last moved the guest."""


NOTHING: Final = History()


class Outcomes:
    """Remembers how evacuations ended, for an hour."""

    def __init__(self, clock: Clock, limit: int = MAX_MACHINES) -> None:
        """``limit`` of machines."""
        self._clock = clock
        self._limit = limit
        self._machines: OrderedDict[NamespacedName, History] = OrderedDict()
        """By namespace and name, which a Migration cannot change, unlike its ownerReferences. Whose evacuation ended last is at the end."""

    def note(self, old: Object | None, new: Object | None) -> None:
        """Take in a change of a Migration, as an informer tells it (``apiserver.client.store.Callback``)."""
        known = new or old or {}
        if evictions.POD_LABEL not in labels_of(known) or (old is not None and not phases.is_unfinished(old)):
            return
        key, now = evictions.machine_of(known), self._clock.now()
        if new is None:
            self._add(key, Ended(name_of(known), now, "it was deleted", is_cancelled=True))
        elif phases.phase_of(new) in _IN_VAIN and not ended_drains.has_ended(new):  # of those, who cordons the node again goes on at once
            at = now if old is not None else _ended(new, now)
            why = one_line(str(dig(new, "status", "message") or ""), MAX_MESSAGE)
            self._add(key, Ended(name_of(new), at, why, phases.phase_of(new) == phases.CANCELLED or is_deleting(new)))
        elif phases.phase_of(new) == phases.SUCCEEDED:
            self._moved(key, now if old is not None else _ended(new, now))
        self._forget(now)

    def of(self, vm: Object) -> History:
        """Return what is known of a machine: of the last hour, and not of an earlier one of its name."""
        known = self._machines.get(key_of(vm), NOTHING)
        made = dig(vm, "metadata", "creationTimestamp")
        since = max(self._clock.now() - REMEMBERED, *([times.parse(str(made))] if made else []), known.moved or _LONG_AGO)
        moved = known.moved if known.moved is not None and known.moved >= since else None
        return History(tuple(each for each in known.in_vain if each.at >= since), moved)

    def __len__(self) -> int:
        return len(self._machines)

    def _add(self, key: NamespacedName, ended: Ended) -> None:
        known = self._machines.pop(key, NOTHING)
        ends = sorted((*known.in_vain, ended), key=lambda each: each.at)
        self._machines[key] = History(tuple(ends[-MAX_ENDS:]), known.moved)

    def _moved(self, key: NamespacedName, at: datetime) -> None:
        known = self._machines.pop(key, NOTHING)
        self._machines[key] = History(known.in_vain, max(at, known.moved or at))

    def _forget(self, now: datetime) -> None:
        while self._machines:
            key, oldest = next(iter(self._machines.items()))
            last = max((*(each.at for each in oldest.in_vain), oldest.moved or _LONG_AGO))
            if len(self._machines) <= self._limit and last >= now - REMEMBERED:
                return
            del self._machines[key]


_LONG_AGO: Final = times.parse("0001-01-02T00:00:00Z")


def _ended(migration: Object, now: datetime) -> datetime:
    """Return when one ended that was over when it was first seen; now where it does not say."""
    try:
        return min(times.parse(str(dig(migration, "status", "endTime"))), now)
    except ValueError:
        return now
