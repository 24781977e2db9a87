"""Decides about the eviction of a launcher pod. Pure.

An eviction is a request that may be refused with 429, which ``kubectl drain`` and the cluster autoscaler repeat every few seconds. So the
guest of an evicted pod is moved first, and the eviction is refused for as long as that takes: its pod ends by itself when the guest has
left. Every request is judged by what there is at that moment, and no queue is kept between two: who stops asking stops the drain, and
the limits of migrations at a time are kept because the next one begins with one of the next requests. Remembered are only how the last
evacuations of the machine ended, since their Migrations are its owner's to delete (``outcomes``), and who found no place (``waiting``).

What happens is ``spec.evictionStrategy``, or the cluster's where the machine says none:

=====================  =================================  ==========================================
strategy               a guest that can migrate           one that cannot
=====================  =================================  ==========================================
LiveMigrate            migrates                           stays, and the refusal says what is in the way
LiveMigrateIfPossible  migrates                           is asked to shut down
Shutdown               is asked to shut down              is asked to shut down
External               stays: another program moves it    stays
=====================  =================================  ==========================================

A guest that is asked to shut down shall go on elsewhere, whatever its machine's run strategy says of guests that end. So it is written into
the machine before the answer that an eviction is the cause; nobody can fail to see it there.

Whoever may evict pods of a namespace, its tenant, has Migrations made by that. So the whole limits are for nodes that somebody empties,
which takes rights on Nodes, and evictions on all other nodes share half of each limit; a guest that was moved from one of them stays for a
while. Who uncordons a node ends its drain, though ``kubectl drain`` asks on: the guests that are there stay for a while (``ended_drains``).
On a node that somebody empties, a namespace that has half of a limit lets those go first that wait and have less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, assert_never

from apiserver.apis.meta import times
from apiserver.apis.meta.backoff import pause_seconds
from apiserver.apis.meta.objects import (
    Object,
    is_deleting,
    is_true,
    key_of,
    name_of,
    namespace_of,
    new_condition,
    uid_of,
    with_condition,
)
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import conditions, evictions, phases, power
from controller.evictions import places
from controller.evictions.outcomes import NOTHING, History
from controller.reconcilers.migrations import ended_drains, made_migrations, migratable
from controller.reconcilers.nodes import emptied_nodes
from controller.reconcilers.pods import liveness, ownership, pod_state

FIRST_PAUSE_SECONDS: Final = 15
"""After a migration that failed, before the next one of this machine; doubled with each further one within an hour."""
LONGEST_PAUSE_SECONDS: Final = 300
"""Also after one that was cancelled: somebody does not want the guest to move."""
REST_SECONDS: Final = 300
"""After a guest was moved, before it is moved again from a node that nobody empties."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The operator's decisions about evictions."""

    strategy: evictions.Strategy = evictions.LIVE_MIGRATE_IF_POSSIBLE
    """Of machines that say none."""
    migrations_per_node: int = 2
    """Migrations from one node, caused by evictions, beyond which an eviction waits."""
    migrations_per_cluster: int = 5

    def shared(self) -> Limits:
        """Return the half of the limits that evictions on nodes which nobody empties may use; at least one each."""
        node, cluster = (max(1, each // 2) for each in (self.migrations_per_node, self.migrations_per_cluster))
        return replace(self, migrations_per_node=node, migrations_per_cluster=cluster)


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything the decision needs."""

    pod: Object | None
    """The pod that is to be evicted; None when there is none of this name."""
    vm: Object | None
    """The machine that its ownerReference names."""
    node: Object | None
    """Node of the pod; None where it is not known, which is a node that nobody empties."""
    migrations: Sequence[Object]
    """Of all namespaces, those that are unfinished or of a drain, and those of this machine. One without a name is being made."""
    claims: Mapping[str, Object | None]
    """Of the machine's disks, by name."""
    now: datetime
    limits: Limits
    history: History = NOTHING
    """Of the machine's evacuations."""
    waiting: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Namespaces that found no place lately, by the node or ``places.CLUSTER``; only on nodes that somebody empties."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Answer, and what is to be done before it is given."""

    allowed: bool
    message: str = ""
    """Of a refusal: what is in the way, or how far it is. Allowed in a dry run: what would be waited for."""
    migration: Object | None = None
    """To be created first. Of two that are decided on at once one is: virt-api takes one unfinished Migration a machine."""
    status: Object | None = None
    """Of the machine whose guest the eviction shuts down: it says so, and is to be written first. None: it does already."""
    waits_at: str | None = None
    """The node that somebody empties, or ``places.CLUSTER``, where there was no place: to be remembered."""
    lasts: bool = False
    """True if a person has to do something about the refusal: who only asks again is refused again."""
    final: bool = False
    """True if nobody is to ask again."""


ALLOWED: Final = Decision(allowed=True)


def rehearsed(decision: Decision) -> Decision:
    """Return the answer to a dry run: since nothing is done for it, it says how the eviction would end, and does so at once.

    ``kubectl drain --dry-run=server`` repeats a refusal with 429 until its timeout.
    """
    if decision.allowed:
        return decision
    return replace(decision, final=True) if decision.lasts else Decision(allowed=True, message=decision.message)


def plan(seen: Observed) -> Decision:
    """Return whether the pod may be evicted now."""
    pod, vm = seen.pod, seen.vm
    if pod is None or is_deleting(pod) or not liveness.may_run(pod):
        return ALLOWED
    if vm is None or not ownership.is_controlled_by(pod, vm):
        return ALLOWED
    if (waits := _under_way(pod, vm, seen.migrations)) is not None:
        return waits
    if not _is_to_go_on(pod, vm):
        return ALLOWED
    if phases.phase_of(vm) != phases.RUNNING:
        return ALLOWED if phases.phase_of(vm) == phases.STOPPING else _end(seen, pod, vm)
    if _has_left(pod, seen.migrations):
        return Decision(allowed=False, message=f"the guest of virtual machine {name_of(vm)} has just moved to another node; ask again")
    if ended_drains.is_over_for(pod, seen.node, seen.migrations, seen.now):
        return _stays(pod, vm)
    match evictions.strategy_of(vm) or seen.limits.strategy:
        case evictions.SHUTDOWN:
            return _end(seen, pod, vm)
        case evictions.EXTERNAL:
            why = f"virtual machine {name_of(vm)} is moved by another program (evictionStrategy External)"
            return Decision(allowed=False, message=f"{why}; a person moves it with: {_by_hand(vm)}", lasts=True)
        case evictions.LIVE_MIGRATE:
            return _not_movable(seen, vm) or _move(seen, pod, vm)
        case evictions.LIVE_MIGRATE_IF_POSSIBLE:
            return _end(seen, pod, vm) if _not_movable(seen, vm) else _move(seen, pod, vm)
        case never:
            assert_never(never)


def _under_way(pod: Object, vm: Object, migrations: Sequence[Object]) -> Decision | None:
    """Refuse the eviction of either pod of an unfinished migration."""
    for each in migrations:
        if not phases.is_unfinished(each) or evictions.machine_of(each) != key_of(vm):
            continue
        phase, name = phases.phase_of(each) or phases.PENDING, name_of(each)
        if name_of(pod) == ownership.target_name(each):
            message = f"the guest of virtual machine {name_of(vm)} is on its way here: migration {name}, {phase}"
            return Decision(allowed=False, message=message)
        source = ownership.source_of(each, vm)
        if source is not None and ownership.is_meant(pod, source, vm):
            why = dig_migration(each, "status", "message")
            said = f"{phase}: {why}" if why else phase
            how = f"migration {name}, {said}" if name else "a migration begins"
            return Decision(allowed=False, message=f"the guest of virtual machine {name_of(vm)} moves to another node first: {how}")
    return None


def _is_to_go_on(pod: Object, vm: Object) -> bool:
    """Return whether the machine's attempt is in this pod, and shall go on."""
    decision = power.decide(vm)
    is_there = phases.phase_of(vm) in phases.WITH_POD and dig_vm(vm, "status", "podUID") == uid_of(pod)
    return is_there and decision.on and decision.attempt <= power.current_attempt(vm)


def _has_left(pod: Object, migrations: Sequence[Object]) -> bool:
    """Return whether the guest has moved away from this pod: the machine was read before, and the migrations after that."""
    moved = (each for each in migrations if phases.phase_of(each) == phases.SUCCEEDED and namespace_of(each) == namespace_of(pod))
    return any(dig_migration(each, "status", "sourcePodUID") == uid_of(pod) for each in moved)


def _stays(pod: Object, vm: Object) -> Decision:
    node = pod_state.node_of(pod)
    over = f"node {node} was uncordoned, so its drain is over: the guest of virtual machine {name_of(vm)} stays"
    return Decision(allowed=False, message=f"{over}. Interrupt the drain; cordon the node again to go on", lasts=True)


def _not_movable(seen: Observed, vm: Object) -> Decision | None:
    """Return the refusal of a guest that cannot migrate and may not be shut down; None for one that can migrate."""
    if not (why := migratable.why_not(vm, seen.claims)):
        return None
    way = "Stop it, or set spec.evictionStrategy to LiveMigrateIfPossible, by which the guest is shut down"
    return Decision(allowed=False, message=f"virtual machine {name_of(vm)} cannot migrate: {why}. {way}", lasts=True)


def _end(seen: Observed, pod: Object, vm: Object) -> Decision:
    """Let the pod be evicted while its machine is on, and have that written down."""
    found = dig_vm(vm, "status", "conditions")
    if is_true(found, conditions.DISRUPTION_TARGET):
        return ALLOWED
    message = f"pod {name_of(pod)} on node {pod_state.node_of(pod)} was to be evicted, as by kubectl drain"
    new = new_condition(vm, conditions.DISRUPTION_TARGET, "True", conditions.EVICTION_ALLOWED, message)
    status = {**(vm.get("status") or {}), "conditions": with_condition(found, new, now=times.to_rfc3339(seen.now))}
    return Decision(allowed=True, status=status)


def _move(seen: Observed, pod: Object, vm: Object) -> Decision:
    is_emptied = emptied_nodes.is_being_emptied(seen.node)
    if waits := _pause(seen.history, seen.now) or ("" if is_emptied else _rest(seen.history, seen.now)):
        told = f"{waits}, of virtual machine {name_of(vm)}"
        at_once = f"; a person need not wait for that: {_by_hand(vm)}" if _is_cancelled(seen.history) else ""
        return Decision(allowed=False, message=told + at_once)
    if (no_place := _no_place(seen, pod, vm, is_emptied=is_emptied)) is not None:
        return no_place
    message = f"the guest of virtual machine {name_of(vm)} moves to another node first: a migration begins"
    return Decision(allowed=False, message=message, migration=_migration(vm, pod, is_emptied=is_emptied))


def _pause(history: History, now: datetime) -> str:
    """Return what to say while the next migration of a machine has to wait for its time, or an empty string."""
    if not history.in_vain:
        return ""
    last = history.in_vain[-1]
    growing = pause_seconds(len(history.in_vain), FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    pause = LONGEST_PAUSE_SECONDS if _is_cancelled(history) else growing
    how = "was cancelled" if last.is_cancelled else "failed"
    return _next_in(pause, last.at, now, f"migration {last.name} {how} ({last.why or 'it does not say why'})")


def _is_cancelled(history: History) -> bool:
    return any(each.is_cancelled for each in history.in_vain)


def _by_hand(vm: Object) -> str:
    """Return the command by which a person moves the guest; no pause counts for it."""
    return f"kubectl virt migrate {name_of(vm)} -n {namespace_of(vm)}"


def _rest(history: History, now: datetime) -> str:
    if history.moved is None:
        return ""
    return _next_in(REST_SECONDS, history.moved, now, "the guest was moved a while ago, and nobody empties its node")


def _next_in(pause: float, since: datetime, now: datetime, why: str) -> str:
    left = min(pause - (now - since).total_seconds(), pause)
    return f"{why}; the next begins in {max(1, round(left))} s" if left > 0 else ""


def _no_place(seen: Observed, pod: Object, vm: Object, *, is_emptied: bool) -> Decision | None:
    """Return the refusal of a guest that has to wait until others have moved."""
    node, namespace = pod_state.node_of(pod), namespace_of(vm)
    limits = seen.limits if is_emptied else seen.limits.shared()
    there = tuple(places.found(seen.migrations, node, limits.migrations_per_node, limits.migrations_per_cluster, seen.now))
    told = f"virtual machine {name_of(vm)} waits to be moved to another node: "
    if (full := next((each for each in there if each.are_full()), None)) is not None:
        why = "" if is_emptied else f", and nobody empties node {node}: half of the limits is for such"
        return Decision(allowed=False, message=f"{told}{full.describe()}{why}", waits_at=full.where if is_emptied else None)
    if not is_emptied:
        return None
    others = next((each for each in there if each.are_others(namespace, seen.waiting)), None)
    return None if others is None else Decision(allowed=False, message=f"{told}{others.describe(namespace)}, and guests of others wait")


def _migration(vm: Object, pod: Object, *, is_emptied: bool) -> Object:
    metadata = {
        "labels": {evictions.POD_LABEL: uid_of(pod), **({evictions.DRAIN_LABEL: "true"} if is_emptied else {})},
        "annotations": {evictions.NODE_ANNOTATION: pod_state.node_of(pod)},
    }
    return made_migrations.migration_of(vm, "evacuation", metadata)
