"""Migrations created by an upgrade, kept in virt-controller's memory until a day after their end.

The pause after a failure and the free room in a batch are computed from these, because a machine's owner can delete Migrations or change
their ownerReferences. A new replica knows only the existing ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, dig, labels_of, name_of, namespace_of, uid_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import evictions, phases
from apiserver.apis.virt.places import names
from controller.runtime.clock import Clock

REMEMBERED: Final = timedelta(days=1)
MAX_REMEMBERED: Final = 10_000
"""More than upgrades create in a day; those that changed longest ago are dropped."""


class Memory:
    """Remembers Migrations of upgrades, by uid, beyond their deletion."""

    def __init__(self, clock: Clock, limit: int = MAX_REMEMBERED) -> None:
        self._clock = clock
        self._limit = limit
        self._stored: OrderedDict[str, tuple[Object, datetime]] = OrderedDict()
        """Each with the time of its last change, the newest last."""

    def note(self, old: Object | None, new: Object | None) -> None:
        """Remember an upgrade's Migration after this change; one deleted unfinished counts as cancelled."""
        found, now = new or old or {}, self._clock.now()
        uid = uid_of(found)
        if not uid or not labels_of(found).get(names.WORKLOAD_UPDATE_LABEL) or structure.of_migration(found):
            return
        before = self._stored[uid][0] if uid in self._stored else None
        if new is None and not phases.is_unfinished(before or found):
            return
        stored = _kept(found, before)
        if new is None:
            stored["status"] = {**stored["status"], "phase": phases.CANCELLED, "endTime": times.to_rfc3339(now)}
        if stored != before:
            self._stored.pop(uid, None)
            self._stored[uid] = stored, now
        self._forget(now)

    def with_forgotten(self, migrations: Iterable[Object]) -> tuple[Object, ...]:
        """Return these Migrations, those of upgrades with their first owners, plus finished ones of upgrades that were deleted."""
        there = {uid_of(each): each for each in migrations}
        restored = {uid: _as_made(each, self._stored[uid][0]) if uid in self._stored else each for uid, each in there.items()}
        return (
            *restored.values(),
            *(stored for uid, (stored, _) in self._stored.items() if uid not in there and not phases.is_unfinished(stored)),
        )

    def __len__(self) -> int:
        return len(self._stored)

    def _forget(self, now: datetime) -> None:
        while self._stored:
            uid, (_, since) = next(iter(self._stored.items()))
            if len(self._stored) <= self._limit and since >= now - REMEMBERED:
                return
            del self._stored[uid]


def _kept(migration: Object, before: Object | None) -> Object:
    references = dig(before or migration, "metadata", "ownerReferences") or []
    status = {key: value for key in ("phase", "endTime", "targetPod") if (value := dig_migration(migration, "status", key))}
    return {
        "metadata": {
            "name": name_of(migration),
            "namespace": namespace_of(migration),
            "uid": uid_of(migration),
            "creationTimestamp": dig_migration(migration, "metadata", "creationTimestamp"),
            "labels": {names.WORKLOAD_UPDATE_LABEL: labels_of(migration)[names.WORKLOAD_UPDATE_LABEL]},
            "ownerReferences": references,
        },
        "spec": {"selector": {"name": evictions.machine_of(migration).name}},
        "status": status,
    }


def _as_made(migration: Object, stored: Object) -> Object:
    metadata: Object = {**migration["metadata"], "ownerReferences": stored["metadata"]["ownerReferences"]}
    return {**migration, "metadata": metadata}
