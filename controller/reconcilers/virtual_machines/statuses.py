"""Statuses that the plan of a machine writes, and their conditions. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, generation_of, new_condition, with_condition, without_condition
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases
from controller.reconcilers import disk_claims
from controller.reconcilers.actions import Action, Emit, Requeue, WriteStatus
from controller.reconcilers.virtual_machines.observed import Observed


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps a machine from starting: a condition that is False, and a Warning Event."""

    type: str
    reason: str
    message: str
    phase: str = phases.PENDING
    """The machine enters it; empty: it keeps its phase."""
    requeue_seconds: float | None = None
    """For an obstacle that ends without an event."""


def status_of(seen: Observed) -> Object:
    """Return a shallow copy of the machine's status."""
    return dict(seen.vm.get("status") or {})


def ready(seen: Observed, status: str, reason: str, message: str) -> list[Object]:
    """Return the machine's conditions with this Ready and without Stalled, because virt-controller works on the machine again."""
    stored = without_condition(dig_vm(seen.vm, "status", "conditions"), conditions.STALLED)
    new = new_condition(seen.vm, conditions.READY, status, reason, message)
    return with_condition(stored, new, now=times.to_rfc3339(seen.now))


def disks_ready(seen: Observed) -> Object:
    """Return the condition DisksReady=True. Its message names the claims, and disks larger than their claims."""
    claims = disk_claims.claims_of(seen.vm)
    message = "; ".join([f"found {', '.join(claims)}" if claims else "no disk needs a claim", *disk_claims.too_small(seen.vm, seen.claims)])
    return new_condition(seen.vm, conditions.DISKS_READY, "True", conditions.DISKS_FOUND if claims else "NoClaims", message)


def wait(seen: Observed, obstacle: Obstacle, *others: Object) -> tuple[Action, ...]:
    """Return the write of Ready False, the obstacle and ``others``, its phase, and a Warning Event, if any changes; then its requeue."""
    status, now = status_of(seen), times.to_rfc3339(seen.now)
    if obstacle.phase:
        status = {**phases.enter(status, obstacle.phase, seen.now), "observedGeneration": generation_of(seen.vm)}
    reason = conditions.DISKS_NOT_READY if obstacle.type == conditions.DISKS_READY else obstacle.reason
    found = ready(seen, "False", reason, obstacle.message)
    if obstacle.type != conditions.READY:
        found = with_condition(found, new_condition(seen.vm, obstacle.type, "False", obstacle.reason, obstacle.message), now=now)
    for each in others:
        found = with_condition(found, each, now=now)
    again = () if obstacle.requeue_seconds is None else (Requeue(obstacle.requeue_seconds),)
    return (*write(seen, {**status, "conditions": found}, Emit("Warning", obstacle.reason, obstacle.message)), *again)


def report(seen: Observed, status: str, reason: str, message: str) -> tuple[Action, ...]:
    """Return the write of this condition Ready, and a Warning Event with the same words; empty if unchanged."""
    return write(seen, {**status_of(seen), "conditions": ready(seen, status, reason, message)}, Emit("Warning", reason, message))


def write(seen: Observed, status: Object, *events: Emit) -> tuple[Action, ...]:
    """Return the write of the status, and the Events; empty if the machine has this status."""
    return (WriteStatus(status), *events) if status != (seen.vm.get("status") or {}) else ()
