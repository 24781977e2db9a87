"""Migrations that an upgrade made, remembered in virt-controller's memory for a day after their end.

How long a machine rests after one that failed, and how many a batch has room for, is counted from these and not from the Migrations that
are there: whoever owns a machine may delete them, or their ownerReferences, and by that would have guests moved without a pause. Every
replica of virt-controller follows the same Migrations and so knows the same; one that starts knows those that are there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, dig, labels_of, name_of, namespace_of, uid_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.lifecycle import evictions, phases
from apiserver.apis.virt.places import names
from controller.runtime.clock import Clock

REMEMBERED: Final = timedelta(days=1)
MAX_REMEMBERED: Final = 10_000
"""Beyond it those that changed longest ago are forgotten: more than upgrades make in a day at their pace."""


class Memory:
    """Remembers the Migrations of upgrades, by their uids."""

    def __init__(self, clock: Clock, limit: int = MAX_REMEMBERED) -> None:
        self._clock = clock
        self._limit = limit
        self._known: OrderedDict[str, tuple[Object, datetime]] = OrderedDict()
        """Facts of each, and since when they hold. Which changed last is at the end."""

    def note(self, old: Object | None, new: Object | None) -> None:
        """Take in a change of a Migration, as an informer tells it (``apiserver.client.store.Callback``)."""
        found, now = new or old or {}, self._clock.now()
        uid = uid_of(found)
        if not uid or not labels_of(found).get(names.WORKLOAD_UPDATE_LABEL) or structure.of_migration(found):
            return
        before = self._known[uid][0] if uid in self._known else None
        if new is None and not phases.is_unfinished(before or found):
            return  # its end is known already, and counts from when that was
        known = _kept(found, before)
        if new is None:
            known["status"] = {**known["status"], "phase": phases.CANCELLED, "endTime": times.to_rfc3339(now)}
        if known != before:
            self._known.pop(uid, None)
            self._known[uid] = known, now
        self._forget(now)

    def with_forgotten(self, migrations: Iterable[Object]) -> tuple[Object, ...]:
        """Return these Migrations, as they were made where an upgrade made them, and those that were deleted since."""
        there = {uid_of(each): each for each in migrations}
        restored = {uid: _as_made(each, self._known[uid][0]) if uid in self._known else each for uid, each in there.items()}
        return (
            *restored.values(),
            *(known for uid, (known, _) in self._known.items() if uid not in there and not phases.is_unfinished(known)),
        )

    def __len__(self) -> int:
        return len(self._known)

    def _forget(self, now: datetime) -> None:
        while self._known:
            uid, (_, since) = next(iter(self._known.items()))
            if len(self._known) <= self._limit and since >= now - REMEMBERED:
                return
            del self._known[uid]


def _kept(migration: Object, before: Object | None) -> Object:
    """Return what of a Migration decides whose turn it is; the owner as it was first seen."""
    references = dig(before or migration, "metadata", "ownerReferences") or []
    status = {key: value for key in ("phase", "endTime", "targetPod") if (value := dig(migration, "status", key))}
    return {
        "metadata": {
            "name": name_of(migration),
            "namespace": namespace_of(migration),
            "uid": uid_of(migration),
            "creationTimestamp": dig(migration, "metadata", "creationTimestamp"),
            "labels": {names.WORKLOAD_UPDATE_LABEL: labels_of(migration)[names.WORKLOAD_UPDATE_LABEL]},
            "ownerReferences": references,
        },
        "spec": {"selector": {"name": evictions.machine_of(migration).name}},
        "status": status,
    }


def _as_made(migration: Object, known: Object) -> Object:
    metadata: Object = {**migration["metadata"], "ownerReferences": known["metadata"]["ownerReferences"]}
    return {**migration, "metadata": metadata}
