"""Drains that an uncordon ended while somebody still evicts, as ``kubectl drain`` does until it is interrupted. Pure.

Nothing of a Node says that it was cordoned a moment ago. But a Migration that an eviction caused on a node that was being emptied bears a
label, every replica of virt-controller has a copy of it, and it outlives all of them. So of a node that nobody empties the drain is over
for all guests that were on it when such a Migration was made, for as long as one of these is under way and a while after that. One that
has had its time does not count: its launcher may have been taken over, and would keep all guests of the node from being evicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, condition, dig, generation_of, labels_of, new_condition, with_condition
from apiserver.apis.virt.lifecycle import evictions, phases
from controller.reconcilers.actions import Action, Emit, WriteStatus
from controller.reconcilers.migrations import migration_bounds, migration_queue
from controller.reconcilers.migrations.migration_plan import SUCCEEDED
from controller.reconcilers.nodes import emptied_nodes
from controller.reconcilers.pods import pod_state

TOLD_SECONDS: Final = 300
"""After the last migration of a drain, in which who goes on evicting is told that the drain is over."""
REASON: Final = "DrainEnded"
"""Of a Migration that a drain caused, and that had not begun when the node was uncordoned."""


def is_over_for(pod: Object, node: Object | None, migrations: Sequence[Object], now: datetime) -> bool:
    """Return whether a pod was on its node during a drain that has ended before it left.

    Args:
        pod: of a guest.
        node: that the pod is on; None where it is not known.
        migrations: of all machines. One without a name is being made.
        now: the present.
    """
    if node is None or emptied_nodes.is_being_emptied(node):
        return False
    there = _moment(pod, "metadata", "creationTimestamp")
    for each in migrations:
        if not is_of_drain(each) or evictions.node_left_by(each) != pod_state.node_of(pod):
            continue
        made = _moment(each, "metadata", "creationTimestamp") or now
        if (there is None or there <= made) and (
            _is_under_way(each, now) or now - _ended(each, made, now) < timedelta(seconds=TOLD_SECONDS)
        ):
            return True
    return False


def _is_under_way(migration: Object, now: datetime) -> bool:
    return phases.is_unfinished(migration) and not migration_bounds.is_overdue(migration, now)


def is_of_drain(migration: Object) -> bool:
    """Return whether an eviction on a node that was being emptied caused a Migration."""
    return not {evictions.POD_LABEL, evictions.DRAIN_LABEL} - labels_of(migration).keys()


def may_end(migration: Object) -> bool:
    """Return whether a Migration is to end if nobody empties its node any more: a drain caused it, and it has not begun."""
    return is_of_drain(migration) and phases.is_unfinished(migration) and migration_queue.waits(migration)


def end(migration: Object, now: datetime) -> tuple[Action, ...]:
    """Return what ends a Migration that has not begun."""
    message = f"node {evictions.node_left_by(migration)} was uncordoned before the migration began: its drain is over"
    new = new_condition(migration, SUCCEEDED, "False", REASON, message)
    status = {
        **phases.enter(migration.get("status") or {}, phases.FAILED, now),
        "observedGeneration": generation_of(migration),
        "endTime": times.to_rfc3339(now),
        "message": message,
        "conditions": with_condition(dig(migration, "status", "conditions"), new, now=times.to_rfc3339(now)),
    }
    return WriteStatus(status), Emit("Normal", REASON, message)


def has_ended(migration: Object) -> bool:
    """Return whether a Migration ended so: nothing was in its way, and nobody cancelled it."""
    return (condition(dig(migration, "status", "conditions"), SUCCEEDED) or {}).get("reason") == REASON


def _ended(migration: Object, made: datetime, now: datetime) -> datetime:
    """Return when one ended; when it was made, where that cannot be so: virt-handlers write it, and a node may be anybody's."""
    found = _moment(migration, "status", "endTime")
    return found if found is not None and made <= found <= now else made


def _moment(obj: Object, *path: str) -> datetime | None:
    try:
        return times.parse(str(dig(obj, *path) or ""))
    except ValueError:
        return None
