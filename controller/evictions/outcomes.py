"""Results of each machine's evacuations in the last hour, in memory. An evacuation is a Migration caused by an eviction.

The pause between evacuations is computed from this, because a machine's owner can delete Migrations. A new replica knows only the existing
ones.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import NamespacedName, Object, is_deleting, key_of, labels_of, name_of
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import evictions, phases
from controller.reconcilers.migrations import ended_drains
from controller.runtime.clock import Clock

REMEMBERED: Final = timedelta(hours=1)
MAX_ENDS: Final = 8
MAX_MACHINES: Final = 10_000
"""The machines whose evacuation ended first are dropped."""
MAX_MESSAGE: Final = 256
_IN_VAIN: Final = frozenset({phases.FAILED, phases.CANCELLED})


@dataclass(frozen=True, slots=True)
class Ended:
    """An evacuation that did not move the guest."""

    name: str
    at: datetime
    why: str = ""
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """A machine's evacuations of the last hour, across all its pods: failures since one moved its guest, and its time (None: not known)."""

    in_vain: tuple[Ended, ...] = ()
    """Oldest first."""
    moved: datetime | None = None


NOTHING: Final = History()


class Outcomes:
    """Stores how evacuations ended, for an hour."""

    def __init__(self, clock: Clock, limit: int = MAX_MACHINES) -> None:
        self._clock = clock
        self._limit = limit
        self._machines: OrderedDict[NamespacedName, History] = OrderedDict()
        """By namespace and name, which a Migration cannot change. Most recently ended last."""

    def note(self, old: Object | None, new: Object | None) -> None:
        """Record an evacuation's result if a Migration's change from ``old`` to ``new`` ends it.

        ``old`` None: first seen. ``new`` None: deleted, which counts as cancelled if it had not ended.
        """
        migration = new or old or {}
        if evictions.POD_LABEL not in labels_of(migration) or (old is not None and not phases.is_unfinished(old)):
            return
        key, now = evictions.machine_of(migration), self._clock.now()
        if new is None:
            self._add(key, Ended(name_of(migration), now, "it was deleted", is_cancelled=True))
        elif phases.phase_of(new) in _IN_VAIN and not ended_drains.has_ended(new):  # cordoning the node again continues an ended drain
            at = now if old is not None else _ended(new, now)
            why = one_line(str(dig_migration(new, "status", "message") or ""), MAX_MESSAGE)
            self._add(key, Ended(name_of(new), at, why, phases.phase_of(new) == phases.CANCELLED or is_deleting(new)))
        elif phases.phase_of(new) == phases.SUCCEEDED:
            self._moved(key, now if old is not None else _ended(new, now))
        self._forget(now)

    def of(self, vm: Object) -> History:
        """Return a machine's last successful evacuation within an hour, and later failures; earlier machines of its name do not count."""
        history = self._machines.get(key_of(vm), NOTHING)
        made = dig_vm(vm, "metadata", "creationTimestamp")
        since = max(self._clock.now() - REMEMBERED, *([times.parse(str(made))] if made else []), history.moved or _LONG_AGO)
        moved = history.moved if history.moved is not None and history.moved >= since else None
        return History(tuple(each for each in history.in_vain if each.at >= since), moved)

    def __len__(self) -> int:
        return len(self._machines)

    def _add(self, key: NamespacedName, ended: Ended) -> None:
        history = self._machines.pop(key, NOTHING)
        ends = sorted((*history.in_vain, ended), key=lambda each: each.at)
        self._machines[key] = History(tuple(ends[-MAX_ENDS:]), history.moved)

    def _moved(self, key: NamespacedName, at: datetime) -> None:
        history = self._machines.pop(key, NOTHING)
        self._machines[key] = History(history.in_vain, max(at, history.moved or at))

    def _forget(self, now: datetime) -> None:
        while self._machines:
            key, oldest = next(iter(self._machines.items()))
            last = max((*(each.at for each in oldest.in_vain), oldest.moved or _LONG_AGO))
            if len(self._machines) <= self._limit and last >= now - REMEMBERED:
                return
            del self._machines[key]


_LONG_AGO: Final = times.parse("0001-01-02T00:00:00Z")


def _ended(migration: Object, now: datetime) -> datetime:
    return min(times.parsed(dig_migration(migration, "status", "endTime")) or now, now)
