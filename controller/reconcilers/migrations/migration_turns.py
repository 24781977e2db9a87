"""Keeps the queue of Migrations up to date with the informers.

The informer does not show a target pod while it is created. So a Migration is recorded here until its pass ends, without an await after the
decision, to keep the limits.
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
from controller.reconcilers import indexes
from controller.reconcilers.indexes import UNFINISHED, Informers
from controller.reconcilers.migrations import migration_queue
from controller.reconcilers.migrations.migration_queue import Turn
from controller.reconcilers.settings import MigrationLimits
from controller.runtime.clock import Clock
from controller.runtime.reconciling import Controller

FRESH_SECONDS: Final = 1.0
"""Until a decision is repeated without changes."""
IN_VAIN_SECONDS: Final = 60.0
"""Until a Migration that failed to begin stops coming last."""
_UNKNOWN: Final = Turn(may_begin=False, message="it is waiting in the queue")


def state_of(migration: Object) -> list[str]:
    """Return ``UNFINISHED`` as the key in ``BY_STATE`` for an unfinished Migration. An invalid one is not queued."""
    return [UNFINISHED] if phases.is_unfinished(migration) and not structure.of_migration(migration) else []


class MigrationTurns:
    """The queue of Migrations that have not begun, decided from the informers."""

    def __init__(self, informers: Informers, limits: MigrationLimits, clock: Clock) -> None:
        self._informers = informers
        self._limits = limits
        self._clock = clock
        self._beginning: set[NamespacedName] = set()
        self._in_vain: dict[NamespacedName, datetime] = {}
        self._turns: Mapping[NamespacedName, Turn] = {}
        self._decided: datetime | None = None
        """None: something has changed since."""
        self._controllers: list[Controller] = []

    def subscribe(self, controller: Controller) -> None:
        """Enqueue waiting Migrations when another finishes, or fails to begin in its turn."""

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
        """Return the Turn of a Migration, decided up to ``FRESH_SECONDS`` ago; one that has begun may continue."""
        if not migration_queue.waits(migration):
            return Turn()
        now = self._clock.now()
        if self._decided is None or abs((now - self._decided).total_seconds()) >= FRESH_SECONDS:
            self._turns, self._decided = migration_queue.turns(self._observed(now)), now
        return self._turns.get(key_of(migration), _UNKNOWN)

    @contextmanager
    def beginning(self, migration: Object) -> Iterator[None]:
        """Count a Migration as in progress while the block creates its target pod."""
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
        """Record after the block, except after a Conflict, whether the Migration began; if not, others go first for ``IN_VAIN_SECONDS``."""
        wrote_another = False
        try:
            yield
        except errors.Conflict:
            wrote_another = True
            raise
        finally:
            if not wrote_another:
                self._note(migration)

    def _note(self, migration: Object) -> None:
        key = key_of(migration)
        found = self._informers.migrations.get(*key)
        if found is None or not migration_queue.waits(found):
            self._in_vain.pop(key, None)
        elif self.of(found).may_begin:
            now = self._clock.now()
            known = key in self._now_in_vain(now)
            self._in_vain[key] = now
            self._decided = None
            if not known:
                self._wake()

    def _wake(self) -> None:
        """Enqueue waiting Migrations, except those that failed to begin, which would wake each other forever."""
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
            emptied=frozenset(name_of(each) for each in self._informers.nodes.by_index(indexes.BY_EMPTYING, indexes.EMPTIED)),
            now=now,
            limits=self._limits,
            beginning=frozenset(self._beginning),
            in_vain=self._now_in_vain(now),
        )
