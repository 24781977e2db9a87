"""Decides which Migrations begin, and the order in which the others wait. Pure.

A Migration begins when it gets a target pod. The number in progress is limited per source node and in the cluster, which share the network.
Order of the waiting ones:

1. the oldest that has waited for ``AGED_SECONDS``, unless another such one is in progress, so none waits forever;
2. guests on a node that is being drained, if their pods were evicted or are outdated (eviction creates no second Migration for those);
3. the others by ``spec.priority``; within a priority the namespaces take turns, the oldest Migration of each first.

Exceptions, so a tenant cannot block the queue:

- A tenant can request nodes that do not exist. After ``PLACE_SECONDS`` a migration without a node does not count for (2).
- After ``LONG_SECONDS``, as of a guest that keeps writing, a migration outside a drain counts neither for (2) nor for other namespaces.
- Migrations that failed to begin are tried after all others.
- An overdue migration (``migration_bounds``) does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import NamespacedName, Object, dig, is_deleting, key_of
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import evictions, migration_attempts, phases
from controller.reconcilers.migrations import migration_bounds, migration_retries
from controller.reconcilers.settings import MigrationLimits

AGED_SECONDS: Final = 600
PLACE_SECONDS: Final = 30
LONG_SECONDS: Final = 600
TOLD_POSITIONS: Final = 10
"""The last reported position, because each change is a write."""
WAITING: Final = frozenset({"", phases.PENDING})
_AGED: Final = timedelta(seconds=AGED_SECONDS)
_PLACE: Final = timedelta(seconds=PLACE_SECONDS)
_LONG: Final = timedelta(seconds=LONG_SECONDS)


@dataclass(frozen=True, slots=True)
class Observed:
    """What :func:`turns` decides from: Migrations, their machines, and the nodes that are being emptied."""

    migrations: Sequence[Object]
    machines: Mapping[NamespacedName, Object]
    emptied: frozenset[str]
    now: datetime
    limits: MigrationLimits
    beginning: frozenset[NamespacedName] = field(default_factory=frozenset)
    """Their target pods are being created, so the stored state is out of date."""
    in_vain: frozenset[NamespacedName] = field(default_factory=frozenset)
    """They failed to begin in their turn, because of a quota or a missing pod of their machine."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The queue's decision about a Migration that has not begun."""

    may_begin: bool = True
    message: str = ""
    is_drain: bool = False
    """True if the guest's node is being drained, and its pod was evicted or is outdated."""


@dataclass(frozen=True, slots=True)
class _Entry:
    key: NamespacedName
    machine: NamespacedName
    node: str
    is_drain: bool
    priority: int
    created: datetime
    started: datetime | None
    waits: bool
    is_slow: bool
    """Its target does not run in time, so it does not count for guests on drained nodes."""
    is_long: bool
    """It only counts for its own namespace."""
    is_overdue: bool

    @property
    def namespace(self) -> str:
        return self.key.namespace


class _Places:
    def __init__(self, limits: MigrationLimits) -> None:
        self._limits = limits
        self._by_node: Counter[tuple[str, str]] = Counter()
        self._all: Counter[str] = Counter()

    def take(self, node: str, only_for: str = "") -> None:
        """Count a migration that leaves ``node`` against the limits of all namespaces, or only of ``only_for``."""
        self._by_node[node, only_for] += 1
        self._all[only_for] += 1

    def full(self, node: str, namespace: str) -> tuple[str, str] | None:
        """Return the node of a reached limit (empty for the cluster's) and a message; None if there is room."""
        leaving = self._by_node[node, ""] + self._by_node[node, namespace]
        if node and leaving >= self._limits.per_node:
            return node, f"1 migration is leaving node {node}" if leaving == 1 else f"{leaving} migrations are leaving node {node}"
        under_way = self._all[""] + self._all[namespace]
        if under_way >= self._limits.per_cluster:
            return "", f"{'1 migration is' if under_way == 1 else f'{under_way} migrations are'} in progress in the cluster"
        return None


def waits(migration: Object) -> bool:
    """Return True if a Migration's first attempt has not begun; False for further attempts, which keep the place."""
    return phases.phase_of(migration) in WAITING and migration_attempts.number_of(migration) <= 1


def turns(seen: Observed) -> dict[NamespacedName, Turn]:
    """Return, by key, the Turn of each Migration that has not begun, except those in deletion or in ``beginning``."""
    entries = [_entry(each, seen) for each in seen.migrations if not (is_deleting(each) and waits(each))]
    begun = [each for each in entries if not each.waits and not each.is_overdue and not is_lost(seen.machines.get(each.machine))]
    ordinary, before_drains = _Places(seen.limits), _Places(seen.limits)
    for each in begun:
        ordinary.take(each.node, each.namespace if each.is_long else "")
        if each.is_drain or not (each.is_slow or each.is_long):
            before_drains.take(each.node)
    found: dict[NamespacedName, Turn] = {}
    waiting: Counter[str] = Counter()
    for each in _ordered(entries, begun, seen):
        if (full := (before_drains if each.is_drain else ordinary).full(each.node, each.namespace)) is not None:
            where, words = full
            found[each.key] = Turn(may_begin=False, message=f"{words}; {_position(waiting[where])}", is_drain=each.is_drain)
            waiting.update({each.node, ""})
            continue
        found[each.key] = Turn(is_drain=each.is_drain)
        if each.key not in seen.in_vain:
            ordinary.take(each.node)
            before_drains.take(each.node)
    return found


def _entry(migration: Object, seen: Observed) -> _Entry:
    key = key_of(migration)
    machine = evictions.machine_of(migration)
    is_waiting = waits(migration) and key not in seen.beginning
    node = str(dig_migration(migration, "status", "sourceNode") or dig(seen.machines.get(machine), "status", "nodeName") or "")
    node = node or evictions.node_left_by(migration)
    started = times.parsed(dig_migration(migration, "status", "startTime")) or (seen.now if key in seen.beginning else None)
    tried = times.parse(again) if (again := migration_retries.retried_at(migration)) is not None else started
    has_no_node = phases.phase_of(migration) == phases.SCHEDULING or (not is_waiting and phases.phase_of(migration) == phases.PENDING)
    is_slow = has_no_node and tried is not None and seen.now - tried >= _PLACE
    is_drain = evictions.is_by_controller(migration) and node in seen.emptied
    is_long = phases.phase_of(migration) == phases.RUNNING and not is_drain and started is not None and seen.now - started >= _LONG
    return _Entry(
        key=key,
        machine=machine,
        node=node,
        is_drain=is_drain,
        priority=int(dig_migration(migration, "spec", "priority") or 0),
        created=times.parsed(dig_migration(migration, "metadata", "creationTimestamp")) or seen.now,
        started=started,
        waits=is_waiting,
        is_slow=is_slow,
        is_long=is_long,
        is_overdue=migration_bounds.is_overdue(migration, seen.now),
    )


def is_lost(vm: Object | None) -> bool:
    """Return whether no Migration of a machine can make progress: it is gone (None), or its phase is empty or Unknown."""
    return phases.phase_of(vm or {}) in ("", phases.UNKNOWN)


def _ordered(entries: Sequence[_Entry], begun: Sequence[_Entry], seen: Observed) -> list[_Entry]:
    waiting = sorted((each for each in entries if each.waits), key=lambda each: (-each.priority, each.created, each.key))
    aged = _aged(waiting, begun, seen)
    held = Counter(each.namespace for each in begun if not each.is_drain)
    order: dict[NamespacedName, tuple[bool, int, int, int, datetime, NamespacedName]] = {}
    for each in waiting:
        rank = 0 if each is aged else 1 if each.is_drain else 2
        order[each.key] = (each.key in seen.in_vain, rank, -each.priority, held[each.namespace], each.created, each.key)
        held[each.namespace] += not each.is_drain
    return sorted(waiting, key=lambda each: order[each.key])


def _aged(waiting: Sequence[_Entry], begun: Sequence[_Entry], seen: Observed) -> _Entry | None:
    """Return the oldest entry that has waited for ``AGED_SECONDS``, is not of a drain and not ``in_vain``; None while such a one runs."""
    if any(not (each.is_drain or each.is_long) and each.started is not None and each.started - each.created >= _AGED for each in begun):
        return None
    aged = (each for each in waiting if not each.is_drain and each.key not in seen.in_vain and seen.now - each.created >= _AGED)
    return min(aged, key=lambda each: (each.created, each.key), default=None)


def _position(before: int) -> str:
    if before >= TOLD_POSITIONS:
        return f"{TOLD_POSITIONS} or more migrations are ahead of it in the queue"
    number = before + 1
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number, "th")
    return f"{number}{ending} in the queue"
