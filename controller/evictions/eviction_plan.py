"""Decides about the eviction of a launcher pod. Pure.

An eviction is refused (429) until the guest has moved, which ends its pod; ``kubectl drain`` and the cluster autoscaler repeat it every few
seconds.

``spec.evictionStrategy``, or the cluster's default, decides whether a guest moves, stays or shuts down (docs/operating/migrations.md,
"Draining a node").

A tenant can cause Migrations by evicting pods. So only nodes that are being drained, which needs rights on Nodes, use the whole limits.
Evictions on other nodes share half of each limit, and a guest moved from one of them is not moved again for a while. Uncordoning a node
ends its drain (``ended_drains``).
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
    dig,
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
from apiserver.apis.virt.places import node_states
from apiserver.apis.virt.spec import hot_plug
from controller.evictions import places
from controller.evictions.outcomes import NOTHING, History
from controller.reconcilers.migrations import ended_drains, migratable, migration_history
from controller.reconcilers.pods import liveness, ownership, pod_state

FIRST_PAUSE_SECONDS: Final = 15
"""Delay after a failed migration; doubled for each further failure within an hour."""
LONGEST_PAUSE_SECONDS: Final = 300
"""Also the delay after a cancelled migration, because a user does not want the guest to move."""
REST_SECONDS: Final = 300
"""Delay until a moved guest is moved again from a node that is not being drained."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The operator's settings for evictions: the default strategy, and how many migrations they may cause at a time."""

    strategy: evictions.Strategy = evictions.LIVE_MIGRATE_IF_POSSIBLE
    migrations_per_node: int = 2
    migrations_per_cluster: int = 5

    def shared(self) -> Limits:
        """Return half of the limits, at least 1 each, for nodes that are not being drained."""
        node, cluster = (max(1, each // 2) for each in (self.migrations_per_node, self.migrations_per_cluster))
        return replace(self, migrations_per_node=node, migrations_per_cluster=cluster)


@dataclass(frozen=True, slots=True)
class Observed:
    """The input of :func:`plan` about one pod's eviction."""

    pod: Object | None
    """None: no pod has this name."""
    vm: Object | None
    """The machine in its ownerReference."""
    node: Object | None
    """None: unknown, which counts as not being drained."""
    migrations: Sequence[Object]
    """The unfinished ones and those of drains, and all of this machine. One without a name is being created."""
    claims: Mapping[str, Object | None]
    now: datetime
    limits: Limits
    history: History = NOTHING
    waiting: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Namespaces that recently found a limit reached, by node or ``places.CLUSTER``; only for drained nodes."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to an eviction, and the writes that must precede it."""

    allowed: bool
    message: str = ""
    """Why the eviction is refused, or in a dry run, what it would wait for."""
    migration: Object | None = None
    status: Object | None = None
    """The machine's status to write first if the eviction shuts its guest down."""
    waits_at: str | None = None
    """The drained node, or ``places.CLUSTER``, with a reached limit."""
    only_waits: bool = False
    """True if unfinished Migrations are the reason, and whether the node is being drained cannot change that."""
    lasts: bool = False
    """True if only a person can end the reason."""
    final: bool = False
    """True if the client should not retry."""


ALLOWED: Final = Decision(allowed=True)


def rehearsed(decision: Decision) -> Decision:
    """Return the answer to a dry run, without writes: a lasting refusal becomes final, another one is allowed with its message."""
    refused = decision.lasts and not decision.allowed
    return Decision(allowed=not refused, message=decision.message, lasts=refused, final=refused)


def plan(seen: Observed) -> Decision:
    """Return the answer to the eviction, and the Migration or status to write first. Allows pods without a machine's guest."""
    pod, vm = seen.pod, seen.vm
    if pod is None or is_deleting(pod) or not liveness.may_run(pod):
        return ALLOWED
    if vm is None or not ownership.is_controlled_by(pod, vm):
        return ALLOWED
    if (waits := _under_way(pod, vm, seen.migrations) or _has_a_disk(pod, vm)) is not None:
        return waits
    if not _is_to_go_on(pod, vm):
        return ALLOWED
    if phases.phase_of(vm) != phases.RUNNING:
        return ALLOWED if phases.phase_of(vm) == phases.STOPPING else _end(seen, pod, vm)
    if _has_left(pod, seen.migrations):
        return Decision(
            allowed=False, message=(f"the guest of virtual machine {name_of(vm)} has just moved to another node; retry the eviction")
        )
    if ended_drains.is_over_for(pod, seen.node, seen.migrations, seen.now):
        return _stays(pod, vm)
    match evictions.strategy_of(vm) or seen.limits.strategy:
        case evictions.SHUTDOWN:
            return _end(seen, pod, vm)
        case evictions.EXTERNAL:
            why = f"virtual machine {name_of(vm)} has evictionStrategy External, so another program must move it"
            return Decision(allowed=False, message=f"{why}; to move it yourself, run: {_by_hand(vm)}", lasts=True)
        case evictions.LIVE_MIGRATE:
            return _not_movable(seen, vm) or _move(seen, pod, vm)
        case evictions.LIVE_MIGRATE_IF_POSSIBLE:
            return _end(seen, pod, vm) if _not_movable(seen, vm) else _move(seen, pod, vm)
        case never:
            assert_never(never)


def _under_way(pod: Object, vm: Object, migrations: Sequence[Object]) -> Decision | None:
    for each in migrations:
        if not phases.is_unfinished(each) or evictions.machine_of(each) != key_of(vm):
            continue
        phase, name = phases.phase_of(each) or phases.PENDING, name_of(each)
        if name_of(pod) == ownership.target_name(each):
            message = f"the guest of virtual machine {name_of(vm)} is migrating to this pod: migration {name}, {phase}"
            return Decision(allowed=False, message=message, only_waits=True)
        source = ownership.source_of(each, vm)
        if source is not None and ownership.is_meant(pod, source, vm):
            why = dig_migration(each, "status", "message")
            said = f"{phase}: {why}" if why else phase
            how = f"migration {name}, {said}" if name else "its migration is starting"
            message = f"the guest of virtual machine {name_of(vm)} must move to another node first: {how}"
            return Decision(allowed=False, message=message, only_waits=True)
    return None


def _has_a_disk(pod: Object, vm: Object) -> Decision | None:
    recorded = {dig(each, "hotplugVolume", "attachPodUID") for each in hot_plug.entries(vm)}
    is_with_guest = pod_state.node_of(pod) == dig_vm(vm, "status", "nodeName")
    if not ownership.is_attachment(pod, vm) or uid_of(pod) not in recorded or not is_with_guest:
        return None
    return Decision(
        allowed=False, message=f"the guest of virtual machine {name_of(vm)} must leave the node first: it uses a disk of this pod"
    )


def _is_to_go_on(pod: Object, vm: Object) -> bool:
    decision = power.decide(vm)
    is_there = phases.phase_of(vm) in phases.WITH_POD and dig_vm(vm, "status", "podUID") == uid_of(pod)
    return is_there and decision.on and decision.attempt <= power.current_attempt(vm)


def _has_left(pod: Object, migrations: Sequence[Object]) -> bool:
    moved = (each for each in migrations if phases.phase_of(each) == phases.SUCCEEDED and namespace_of(each) == namespace_of(pod))
    return any(dig_migration(each, "status", "sourcePodUID") == uid_of(pod) for each in moved)


def _stays(pod: Object, vm: Object) -> Decision:
    node = pod_state.node_of(pod)
    over = f"node {node} was uncordoned, which ended its drain: the guest of virtual machine {name_of(vm)} stays"
    return Decision(allowed=False, message=f"{over}. Interrupt kubectl drain, or cordon the node again to continue", lasts=True)


def _not_movable(seen: Observed, vm: Object) -> Decision | None:
    if not (why := migratable.why_not(vm, seen.claims)):
        return None
    way = "Stop it, or set spec.evictionStrategy to LiveMigrateIfPossible, which shuts the guest down"
    return Decision(allowed=False, message=f"virtual machine {name_of(vm)} cannot migrate: {why}. {way}", lasts=True)


def _end(seen: Observed, pod: Object, vm: Object) -> Decision:
    """Allow the eviction, which shuts the guest down.

    The decision's status has ``DisruptionTarget``, so the machine starts elsewhere whatever its run strategy; None if already set.
    """
    found = dig_vm(vm, "status", "conditions")
    if is_true(found, conditions.DISRUPTION_TARGET):
        return ALLOWED
    message = f"pod {name_of(pod)} on node {pod_state.node_of(pod)} received an eviction, as from kubectl drain"
    new = new_condition(vm, conditions.DISRUPTION_TARGET, "True", conditions.EVICTION_ALLOWED, message)
    status = {**(vm.get("status") or {}), "conditions": with_condition(found, new, now=times.to_rfc3339(seen.now))}
    return Decision(allowed=True, status=status)


def _move(seen: Observed, pod: Object, vm: Object) -> Decision:
    is_emptied = node_states.is_being_emptied(seen.node)
    if waits := _pause(seen.history, seen.now) or ("" if is_emptied else _rest(seen.history, seen.now)):
        told = f"{waits}, of virtual machine {name_of(vm)}"
        at_once = f"; to migrate it now, run: {_by_hand(vm)}" if _is_cancelled(seen.history) else ""
        return Decision(allowed=False, message=told + at_once)
    if (no_place := _no_place(seen, pod, vm, is_emptied=is_emptied)) is not None:
        return no_place
    message = f"the guest of virtual machine {name_of(vm)} must move to another node first: its migration is starting"
    return Decision(allowed=False, message=message, migration=_migration(vm, pod, is_emptied=is_emptied))


def _pause(history: History, now: datetime) -> str:
    if not history.in_vain:
        return ""
    last = history.in_vain[-1]
    growing = pause_seconds(len(history.in_vain), FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    pause = LONGEST_PAUSE_SECONDS if _is_cancelled(history) else growing
    how = "was cancelled" if last.is_cancelled else "failed"
    return _next_in(pause, last.at, now, f"migration {last.name} {how} ({last.why or 'no reason given'})")


def _is_cancelled(history: History) -> bool:
    return any(each.is_cancelled for each in history.in_vain)


def _by_hand(vm: Object) -> str:
    return f"kubectl virt migrate {name_of(vm)} -n {namespace_of(vm)}"


def _rest(history: History, now: datetime) -> str:
    if history.moved is None:
        return ""
    return _next_in(REST_SECONDS, history.moved, now, "the guest was moved recently and its node is not being drained")


def _next_in(pause: float, since: datetime, now: datetime, why: str) -> str:
    left = min(pause - (now - since).total_seconds(), pause)
    return f"{why}; the next migration starts in {max(1, round(left))} s" if left > 0 else ""


def _no_place(seen: Observed, pod: Object, vm: Object, *, is_emptied: bool) -> Decision | None:
    node, namespace = pod_state.node_of(pod), namespace_of(vm)
    limits = seen.limits if is_emptied else seen.limits.shared()
    there = tuple(places.found(seen.migrations, node, limits.migrations_per_node, limits.migrations_per_cluster, seen.now))
    told = f"virtual machine {name_of(vm)} waits for its migration to another node: "
    if (full := next((each for each in there if each.are_full()), None)) is not None:
        why = "" if is_emptied else f"; node {node} is not being drained, so only half of each limit applies"
        where = full.where if is_emptied else None
        return Decision(allowed=False, message=f"{told}{full.describe()}{why}", waits_at=where, only_waits=is_emptied)
    if not is_emptied:
        return None
    others = next((each for each in there if each.are_others(namespace, seen.waiting)), None)
    return (
        None
        if others is None
        else Decision(allowed=False, message=f"{told}{others.describe(namespace)}, and guests of other namespaces wait", only_waits=True)
    )


def _migration(vm: Object, pod: Object, *, is_emptied: bool) -> Object:
    metadata = {
        "labels": {evictions.POD_LABEL: uid_of(pod), **({evictions.DRAIN_LABEL: "true"} if is_emptied else {})},
        "annotations": {evictions.NODE_ANNOTATION: pod_state.node_of(pod)},
    }
    return migration_history.made(vm, "evacuation", metadata)
