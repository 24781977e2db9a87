"""Decides which machines of a set get the newest template next. Pure.

virt-api restarts a guest that does not take the edit live; a live change that fails or waits stops the update. A machine that is not ready,
stops anyway or is off gets the template at once, so a template that cannot run can be undone. One that may serve, such as on an unreachable
node, needs the budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from apiserver.apis.meta.objects import Object, is_deleting, labels_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.kinds import dig_replica_set
from apiserver.apis.virt.lifecycle import ordinals, phases, power, revisions
from apiserver.apis.virt.spec import running
from controller.reconcilers.replica_sets import readiness


@dataclass(frozen=True, slots=True)
class Rollout:
    """The next step of an update, and its progress."""

    update: tuple[int, ...] = ()
    """Ordinals."""
    updated: int = 0
    """Machines with the newest template."""
    is_complete: bool = False
    """All machines have the newest template, and are available or off."""
    restarting: int = 0
    """Ready machines that are about to restart or stop."""
    behind: int = 0
    """Guests that lack a part of the newest template: a live change waits or has failed."""


def plan(replica_set: Object, machines: Mapping[int, Object], now: datetime, min_ready_seconds: int) -> Rollout:
    """Return the next step, for machines by ordinal that are not in deletion. A malformed one counts as missing."""
    newest, wanted = revisions.newest(replica_set), ordinals.wanted(replica_set)
    present = {ordinal: vm for ordinal, vm in machines.items() if ordinal in wanted and not structure.of_virtual_machine(vm)}
    updated = {ordinal for ordinal, vm in present.items() if labels_of(vm).get(revisions.LABEL) == newest}
    unsettled = {ordinal for ordinal, vm in present.items() if not is_settled(vm, now, min_ready_seconds)}
    behind = {ordinal for ordinal in updated if _is_behind(replica_set, present[ordinal])}
    unsettled |= behind
    is_complete = bool(newest) and len(updated) == len(wanted) and not unsettled
    restarting = sum(1 for ordinal in unsettled if power.end_asked_for(present[ordinal]) and readiness.ready_since(present[ordinal]))
    done = Rollout(updated=len(updated), is_complete=is_complete, restarting=restarting, behind=len(behind))
    stands_still = is_deleting(replica_set) or dig_replica_set(replica_set, "spec", "paused") or not newest
    if stands_still or revisions.strategy_of(replica_set) != revisions.ROLLING_UPDATE:
        return done
    lowest = revisions.partition(replica_set)
    stale = sorted((each for each in present if each not in updated and each >= lowest), reverse=True)
    free = [each for each in stale if not may_serve(present[each])]
    others = [each for each in stale if each not in free]
    budget = revisions.max_unavailable(replica_set) - (len(wanted) - len(present)) - len(unsettled)
    return replace(done, update=(*free, *others[: max(budget, 0)]))


def is_off(vm: Object) -> bool:
    """Return whether the machine has no pod, and should have none; False if its last attempt failed or its node was lost."""
    decision = power.decide(vm)
    return phases.phase_of(vm) not in phases.WITH_POD and not decision.on and not power.has_given_up(vm, decision)


def _is_behind(replica_set: Object, vm: Object) -> bool:
    is_under_way = revisions.current(replica_set) != revisions.newest(replica_set)
    rolls = is_under_way and revisions.strategy_of(replica_set) == revisions.ROLLING_UPDATE
    return rolls and not power.end_asked_for(vm) and bool(running.differences(vm))


def may_serve(vm: Object) -> bool:
    """Return whether the machine is ready, or may be so on a node that does not report; False if it is off, or about to stop or restart."""
    return not power.end_asked_for(vm) and readiness.may_be_ready(vm)


def is_at_rest(vm: Object) -> bool:
    """Return whether a machine is off, and sound; also one that its user stopped."""
    return not structure.of_virtual_machine(vm) and is_off(vm)


def is_settled(vm: Object, now: datetime, min_ready_seconds: int) -> bool:
    """Return whether the machine is off, or available and not about to stop or restart."""
    since = readiness.available_from(vm, min_ready_seconds)
    return is_off(vm) or (since is not None and since <= now and not power.end_asked_for(vm))
