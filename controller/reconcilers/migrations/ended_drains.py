"""Drains ended by uncordoning while a client still evicts, as ``kubectl drain`` does until interrupted. Pure.

A Node does not record that it was cordoned before, but a drain's Migrations have a label. So if a node is not being drained, its drain is
over for all guests that were on it when such a Migration was created, while one of these is in progress and for a while afterwards. An
overdue Migration does not count: a compromised launcher could prevent evictions from the node for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, condition, dig, generation_of, labels_of, new_condition, with_condition
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import evictions, phases
from apiserver.apis.virt.places import node_states
from controller.reconcilers.actions import Action, Emit, WriteStatus
from controller.reconcilers.migrations import migration_bounds, migration_queue
from controller.reconcilers.migrations.migration_plan import SUCCEEDED
from controller.reconcilers.pods import pod_state

TOLD_SECONDS: Final = 300
"""Seconds after its last migration in which clients are told that the drain is over."""
REASON: Final = "DrainEnded"
"""Of a Migration that had not begun when the node was uncordoned."""


def is_over_for(pod: Object, node: Object | None, migrations: Sequence[Object], now: datetime) -> bool:
    """Return whether the drain that would evict this pod has ended.

    The node exists and is not being drained, and a drain's Migration off it, not older than the pod, is in progress or ended within
    ``TOLD_SECONDS``. One of ``migrations`` without a creation time is being created.
    """
    if node is None or node_states.is_being_emptied(node):
        return False
    there = times.parsed(dig(pod, "metadata", "creationTimestamp"))
    for each in migrations:
        if not is_of_drain(each) or evictions.node_left_by(each) != pod_state.node_of(pod):
            continue
        made = times.parsed(dig_migration(each, "metadata", "creationTimestamp")) or now
        if (there is None or there <= made) and (
            _is_under_way(each, now) or now - _ended(each, made, now) < timedelta(seconds=TOLD_SECONDS)
        ):
            return True
    return False


def _is_under_way(migration: Object, now: datetime) -> bool:
    return phases.is_unfinished(migration) and not migration_bounds.is_overdue(migration, now)


def is_of_drain(migration: Object) -> bool:
    """Return whether an eviction during a drain caused the Migration."""
    return not {evictions.POD_LABEL, evictions.DRAIN_LABEL} - labels_of(migration).keys()


def may_end(migration: Object) -> bool:
    """Return whether uncordoning its node ends the Migration: a drain caused it, and it has not begun."""
    return is_of_drain(migration) and phases.is_unfinished(migration) and migration_queue.waits(migration)


def end(migration: Object, now: datetime) -> tuple[Action, ...]:
    """Return actions that fail a Migration that has not begun: its node was uncordoned."""
    message = f"node {evictions.node_left_by(migration)} was uncordoned before the migration began, which ended its drain"
    new = new_condition(migration, SUCCEEDED, "False", REASON, message)
    status = {
        **phases.enter(migration.get("status") or {}, phases.FAILED, now),
        "observedGeneration": generation_of(migration),
        "endTime": times.to_rfc3339(now),
        "message": message,
        "conditions": with_condition(dig_migration(migration, "status", "conditions"), new, now=times.to_rfc3339(now)),
    }
    return WriteStatus(status), Emit("Normal", REASON, message)


def has_ended(migration: Object) -> bool:
    """Return whether :func:`end` ended the Migration, by its condition's reason; its phase is then Failed."""
    return (condition(dig_migration(migration, "status", "conditions"), SUCCEEDED) or {}).get("reason") == REASON


def _ended(migration: Object, made: datetime, now: datetime) -> datetime:
    """Return the Migration's end time, or its creation time if it has none or a compromised node wrote an implausible one."""
    found = times.parsed(dig_migration(migration, "status", "endTime"))
    return found if found is not None and made <= found <= now else made
