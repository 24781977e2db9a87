"""Decides which machines a set adopts, releases, creates and deletes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

from apiserver.apis.meta.objects import Object, is_deleting, name_of
from apiserver.apis.virt.kinds import dig_replica_set
from apiserver.apis.virt.lifecycle import ordinals
from controller.reconcilers.replica_sets import claims, finished, membership, readiness, rollout_plan, scale_down
from controller.reconcilers.replica_sets.finished import Finished
from controller.reconcilers.replica_sets.membership import Membership
from controller.reconcilers.replica_sets.rollout_plan import Rollout

NO_ROLLOUT: Final = Rollout()
BURST: Final = 500
"""Writes of one pass, as in Kubernetes."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What :func:`plan` decides from: a set, its machines and claims."""

    replica_set: Object
    machines: Sequence[Object]
    """At least those that it controls, and matching ones without a controller."""
    now: datetime
    claims: Sequence[Object] = ()
    """Those that it created."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, and the machines that the status counts."""

    adopted: tuple[Object, ...] = ()
    released: tuple[Object, ...] = ()
    create: int = 0
    """Number of machines to create in a set without ordinals."""
    ordinals: tuple[int, ...] = ()
    """Numbers of the machines to create, in a set with ordinals."""
    rollout: Rollout = NO_ROLLOUT
    delete: tuple[Object, ...] = ()
    delete_claims: tuple[Object, ...] = ()
    active: tuple[Object, ...] = ()
    terminating: int = 0
    finished: int = 0
    waiting: int = 0
    """Finished ones that are replaced after a pause."""
    requeue_after: float | None = None
    """Until time alone changes the plan or the status."""

    @property
    def acts(self) -> bool:
        """Return whether the plan adopts, releases, creates, updates or deletes machines, or deletes claims."""
        writes = (self.create, self.ordinals, self.rollout.update, self.delete, self.delete_claims)
        return any((self.adopted, self.released, *writes))


def plan(seen: Observed) -> Plan:
    """Return the Plan: machines to adopt, release, create, update and delete, claims to delete, and numbers for the status."""
    found = membership.of_set(seen.replica_set, seen.machines)
    present = [vm for vm in found.members if not is_deleting(vm)]
    if ordinals.has_ordinals(seen.replica_set):
        return _with_ordinals(seen, found, present)
    over: list[Object] = []
    active: list[Object] = []
    for vm in present:
        (over if finished.is_finished(vm) else active).append(vm)
    ended = finished.by_age(over, seen.now)
    create, delete = _changes(seen.replica_set, active, ended)
    return Plan(
        adopted=found.adopted,
        released=found.released,
        create=create,
        delete=delete,
        active=tuple(active),
        terminating=len(found.members) - len(present),
        finished=len(over),
        waiting=len(ended.waiting),
        requeue_after=_next(seen, active, ended),
    )


def _with_ordinals(seen: Observed, found: Membership, present: Sequence[Object]) -> Plan:
    """Return the plan of a set with ordinals. An ended machine keeps its place, and a machine in deletion its name."""
    wanted, names = ordinals.wanted(seen.replica_set), {name_of(vm) for vm in found.members}
    numbered = {number: vm for vm in present if (number := ordinals.ordinal_of(seen.replica_set, name_of(vm))) is not None}
    create: list[int] = []
    excess: list[int] = []
    if not _stands_still(seen.replica_set):
        # Lazily, because replicas may be two billion.
        missing = (each for each in wanted if ordinals.machine_name(seen.replica_set, each) not in names)
        create = list(islice(missing, BURST))
        excess = sorted((each for each in numbered if each not in wanted), reverse=True)
    return Plan(
        adopted=found.adopted,
        released=found.released,
        ordinals=tuple(create),
        rollout=rollout_plan.plan(seen.replica_set, numbered, seen.now, min_ready_seconds(seen.replica_set)),
        delete=tuple(numbered[each] for each in excess[:BURST]),
        delete_claims=claims.superfluous(seen.replica_set, seen.claims, seen.machines)[:BURST],
        active=tuple(present),
        terminating=len(found.members) - len(present),
        requeue_after=_next(seen, present, Finished()),
    )


def _stands_still(replica_set: Object) -> bool:
    return is_deleting(replica_set) or bool(dig_replica_set(replica_set, "spec", "paused"))


def _changes(replica_set: Object, active: Sequence[Object], ended: Finished) -> tuple[int, tuple[Object, ...]]:
    if _stands_still(replica_set):
        return 0, ()
    excess = len(active) - wanted_replicas(replica_set)
    too_many = tuple(scale_down.in_order(active)[:excess]) if excess > 0 else ()
    missing = max(-excess - len(ended.waiting), 0)
    return min(missing, BURST), (*too_many, *ended.expired)[:BURST]


def _next(seen: Observed, active: Sequence[Object], ended: Finished) -> float | None:
    seconds = min_ready_seconds(seen.replica_set)
    ready = (readiness.available_from(vm, seconds) for vm in active) if seconds else ()
    moments = [each for each in (*ready, ended.next_change) if each is not None and each > seen.now]
    return (min(moments) - seen.now).total_seconds() if moments else None


def wanted_replicas(replica_set: Object) -> int:
    """Return ``spec.replicas``; 1 if unset."""
    wanted = dig_replica_set(replica_set, "spec", "replicas")
    return 1 if wanted is None else int(wanted)


def min_ready_seconds(replica_set: Object) -> int:
    """Return ``spec.minReadySeconds``; 0 if unset."""
    return int(dig_replica_set(replica_set, "spec", "minReadySeconds") or 0)
