"""The queue of Migrations as virt-controller keeps it: decided from the copies in memory, at once when one of them changes.

Between a turn and the target pod there are requests, and the copy tells nothing of these. So what begins is noted here until its pass is
over, and nothing runs between the decision and the note: the limits hold whatever passes at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import NamespacedName, Object, key_of, name_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.lifecycle import evictions, phases
from controller.reconcilers.indexes import UNFINISHED, Informers
from controller.reconcilers.migrations import migration_queue
from controller.reconcilers.migrations.migration_queue import Turn
from controller.reconcilers.nodes import emptied_nodes
from controller.reconcilers.settings import MigrationLimits
from controller.runtime.clock import Clock
from controller.runtime.reconciling import Controller

FRESH_SECONDS: Final = 1.0
"""For which a decision stands while nothing changes but the time."""
IN_VAIN_SECONDS: Final = 60.0
"""For which one that did not begin when it was its turn comes after all others."""
_UNKNOWN: Final = Turn(may_begin=False, message="it waits for its turn")


def state_of(migration: Object) -> list[str]:
    """Index function for ``BY_STATE``; one that is not sound is in no queue, and nothing is done about it."""
    return [UNFINISHED] if phases.is_unfinished(migration) and not structure.of_migration(migration) else []


class MigrationTurns:
    """Queue of Migrations, and whose turn it is."""

    def __init__(self, informers: Informers, limits: MigrationLimits, clock: Clock) -> None:
        self._informers = informers
        self._limits = limits
        self._clock = clock
        self._beginning: set[NamespacedName] = set()
        self._in_vain: dict[NamespacedName, datetime] = {}
        """By when."""
        self._turns: Mapping[NamespacedName, Turn] = {}
        self._decided: datetime | None = None
        """None: something has changed since."""
        self._controllers: list[Controller] = []

    def subscribe(self, controller: Controller) -> None:
        """Enqueue those that wait when one is over."""

        def changed(old: Object | None, new: Object | None) -> None:
            self._decided = None
            if old is not None and phases.is_unfinished(old) and (new is None or not phases.is_unfinished(new)):
                self._in_vain.pop(key_of(old), None)
                self._wake()

        def machine_changed(old: Object | None, new: Object | None) -> None:
            del old, new
            self._decided = None

        self._controllers.append(controller)
        self._informers.migrations.subscribe(changed)
        self._informers.vms.subscribe(machine_changed)

    def of(self, migration: Object) -> Turn:
        """Return the turn of a Migration that has not begun; any other has begun."""
        if not migration_queue.waits(migration):
            return Turn()
        now = self._clock.now()
        if self._decided is None or abs((now - self._decided).total_seconds()) >= FRESH_SECONDS:
            self._turns, self._decided = migration_queue.turns(self._observed(now)), now
        return self._turns.get(key_of(migration), _UNKNOWN)

    @contextmanager
    def beginning(self, migration: Object) -> Iterator[None]:
        """Count a Migration among those that are under way while its target pod is made."""
        key = key_of(migration)
        self._beginning.add(key)
        self._decided = None
        try:
            yield
        finally:
            self._beginning.discard(key)
            self._decided = None

    @contextmanager
    def tried(self, migration: Object) -> Iterator[None]:
        """Note whether one whose turn it is begins in this pass: if it does not, none waits for it for a while."""
        wrote_another = False
        try:
            yield
        except errors.Conflict:
            wrote_another = True  # it is reconciled again in a moment
            raise
        finally:
            if not wrote_another:
                self._note(migration)

    def _note(self, migration: Object) -> None:
        key = key_of(migration)
        found = self._informers.migrations.get(*key)
        if found is None or not migration_queue.waits(found):
            self._in_vain.pop(key, None)
        elif self.of(found).may_begin:  # and not another's by now
            now = self._clock.now()
            known = key in self._now_in_vain(now)
            self._in_vain[key] = now
            self._decided = None
            if not known:
                self._wake()

    def _wake(self) -> None:
        """Enqueue those that wait; of those that were tried in vain each has its own time: they would wake each other for ever."""
        waiting = {key_of(each) for each in self._unfinished() if migration_queue.waits(each)}
        for key in sorted(waiting - self._now_in_vain(self._clock.now())):
            for controller in self._controllers:
                controller.enqueue(key)

    def _now_in_vain(self, now: datetime) -> frozenset[NamespacedName]:
        return frozenset(key for key, at in self._in_vain.items() if abs((now - at).total_seconds()) < IN_VAIN_SECONDS)

    def _unfinished(self) -> tuple[Object, ...]:
        return tuple(self._informers.unfinished_migrations())

    def _observed(self, now: datetime) -> migration_queue.Observed:
        migrations, vms = self._unfinished(), self._informers.vms
        moved = {evictions.machine_of(each) for each in migrations}
        return migration_queue.Observed(
            migrations=migrations,
            machines={key: vm for key in moved if (vm := vms.get(*key)) is not None},
            emptied=frozenset(name_of(each) for each in self._informers.nodes.list() if emptied_nodes.is_being_emptied(each)),
            now=now,
            limits=self._limits,
            beginning=frozenset(self._beginning),
            in_vain=self._now_in_vain(now),
        )
