"""Decides which guests move next into pods of the current version after an upgrade of the chart. Pure.

Migrations of the lowest priority move guests. They are created only if they can begin at once within the node's and the cluster's limits,
so that they delay no user's migration or drain. Deleted Migrations count.

A failed one is repeated after ``FIRST_PAUSE_SECONDS``, doubled for each further failure; after a cancelled one the delay is the longest.
Namespaces take turns, and within one those with the fewest attempts go first, so an immovable guest or a tenant who rewrites pods'
images delays no other. A guest that was moved but is in an outdated pod again stays, because something in the cluster changes images.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.backoff import pause_seconds
from apiserver.apis.meta.objects import NamespacedName, Object, dig, is_deleting, is_true, key_of, labels_of, name_of, namespace_of, uid_of
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import conditions, evictions, phases, power
from apiserver.apis.virt.places import names
from controller.reconcilers.migrations import migration_history, migration_queue
from controller.reconcilers.pods import liveness, pod_state
from controller.reconcilers.settings import MigrationLimits, Settings
from controller.reconcilers.virtual_machines import outdated

PRIORITY: Final = -100
FIRST_PAUSE_SECONDS: Final = 300
LONGEST_PAUSE_SECONDS: Final = 3600
_IN_VAIN: Final = frozenset({phases.FAILED, phases.CANCELLED})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A machine with an outdated launcher."""

    vm: Object
    pod: Object | None
    claims: Mapping[str, Object | None]


@dataclass(frozen=True, slots=True)
class Observed:
    """What :func:`plan` decides from: machines with an outdated launcher, Migrations, and recent evictions."""

    candidates: Sequence[Candidate]
    migrations: Sequence[Object]
    """Of all namespaces, and deleted ones of upgrades."""
    nodes: Mapping[NamespacedName, str]
    """Of the machines that unfinished ones move."""
    now: datetime
    settings: Settings
    limits: MigrationLimits
    evicted: Mapping[str, datetime] = field(default_factory=dict)
    """By uid of the pod."""
    refused: frozenset[NamespacedName] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Plan:
    """What begins, in order: pairs of a machine and its new Migration, or of a machine and its pod to evict."""

    migrations: tuple[tuple[Object, Object], ...] = ()
    evictions: tuple[tuple[Object, Object], ...] = ()


def mark(settings: Settings) -> str:
    """Return the value of ``names.WORKLOAD_UPDATE_LABEL``: a digest, short enough for a label, of the name of virt-launcher's image."""
    digest = hashlib.sha256(settings.launcher_image.encode()).digest()
    return base64.b32encode(digest)[:10].decode().lower()


def plan(seen: Observed) -> Plan:
    """Return the Migrations and evictions that begin now."""
    update = seen.settings.workload_update
    ours = [each for each in seen.migrations if _is_ours(each, seen)]
    since = seen.now - timedelta(seconds=update.batch_seconds)
    begun = [each for each in ours if phases.is_unfinished(each) or _created(each, seen.now) > since]
    room = update.batch_size - len(begun) - sum(1 for at in seen.evicted.values() if at > since)
    places = _Places(seen)
    moves: list[tuple[Object, Object]] = []
    ends: list[tuple[Object, Object]] = []
    for vm, pod, reason in _in_turns(_movable(seen, ours), Counter(map(namespace_of, begun))):
        if len(moves) + len(ends) >= room:
            break
        if reason == conditions.WILL_BE_EVICTED:
            ends.append((vm, pod))
        elif places.take(pod_state.node_of(pod)):
            moves.append((vm, _migration(vm, seen.settings)))
    return Plan(tuple(moves), tuple(ends))


def _is_ours(migration: Object, seen: Observed) -> bool:
    return labels_of(migration).get(names.WORKLOAD_UPDATE_LABEL) == mark(seen.settings)


@dataclass(frozen=True, slots=True)
class _Movable:
    vm: Object
    pod: Object
    reason: str
    tries: int


def _in_turns(found: Iterable[_Movable], held: Counter[str]) -> list[tuple[Object, Object, str]]:
    """Return machines, pods and reasons in the namespaces' turns.

    ``held``: how many of this batch each namespace has; changed in place.
    """
    order: list[tuple[int, int, NamespacedName, _Movable]] = []
    for each in sorted(found, key=lambda each: (each.tries, key_of(each.vm))):
        order.append((held[namespace_of(each.vm)], each.tries, key_of(each.vm), each))
        held[namespace_of(each.vm)] += 1
    return [(each.vm, each.pod, each.reason) for *_, each in sorted(order, key=lambda each: each[:3])]


def _movable(seen: Observed, ours: Sequence[Object]) -> Iterable[_Movable]:
    busy = {evictions.machine_of(each) for each in seen.migrations if phases.is_unfinished(each)}
    histories: dict[str, list[Object]] = {}
    for migration in ours:
        histories.setdefault(migration_history.owner_uid(migration), []).append(migration)
    for each in seen.candidates:
        vm, pod = each.vm, each.pod
        if pod is None or key_of(vm) in busy or key_of(vm) in seen.refused or uid_of(pod) in seen.evicted or not _goes_on(vm, pod):
            continue
        reason = outdated.way(vm, each.claims, seen.settings).reason
        if reason == conditions.STAYS or not outdated.is_outdated(pod, seen.settings):
            continue
        history = histories.get(uid_of(vm), [])
        if any(phases.phase_of(one) == phases.SUCCEEDED and dig(one, "status", "targetPod") == name_of(pod) for one in history):
            continue
        if reason == conditions.WILL_MIGRATE and _rests([one for one in history if phases.phase_of(one) in _IN_VAIN], seen.now):
            continue
        yield _Movable(vm, pod, reason, len(history))


def _goes_on(vm: Object, pod: Object) -> bool:
    decision = power.decide(vm)
    is_there = phases.phase_of(vm) == phases.RUNNING and not is_deleting(vm) and not is_deleting(pod) and liveness.may_run(pod)
    is_ended = is_true(dig_vm(vm, "status", "conditions"), conditions.DISRUPTION_TARGET)
    return is_there and not is_ended and decision.on and decision.attempt <= power.current_attempt(vm)


def _rests(failed: Sequence[Object], now: datetime) -> bool:
    if not failed:
        return False
    is_cancelled = any(phases.phase_of(each) == phases.CANCELLED for each in failed)
    pause = LONGEST_PAUSE_SECONDS if is_cancelled else pause_seconds(len(failed), FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    last = max(_ended(each, now) for each in failed)
    return now - last < timedelta(seconds=pause)


class _Places:
    """Free places of migrations, counted as in the queue: a lost machine's migration takes none.

    Waiting Migrations that upgrades did not create take none, because any number may never begin.
    """

    def __init__(self, seen: Observed) -> None:
        self._limits = seen.limits
        begun = [
            each for each in seen.migrations if phases.is_unfinished(each) and (_is_ours(each, seen) or not migration_queue.waits(each))
        ]
        left = [(evictions.node_left_by(each), seen.nodes.get(evictions.machine_of(each))) for each in begun]
        self._leaving = Counter(evicted_from or node for evicted_from, node in left if node is not None)
        self._all = self._leaving.total()

    def take(self, node: str) -> bool:
        """Take a place for this node; return whether there was one."""
        if self._all >= self._limits.per_cluster or self._leaving[node] >= self._limits.per_node:
            return False
        self._all += 1
        self._leaving[node] += 1
        return True


def _migration(vm: Object, settings: Settings) -> Object:
    return migration_history.made(vm, "update", {"labels": {names.WORKLOAD_UPDATE_LABEL: mark(settings)}}, priority=PRIORITY)


def _created(migration: Object, now: datetime) -> datetime:
    return times.parsed(dig_migration(migration, "metadata", "creationTimestamp")) or now


def _ended(migration: Object, now: datetime) -> datetime:
    return min(times.parsed(dig_migration(migration, "status", "endTime")) or _created(migration, now), now)
