"""Statuses that a plan writes, and what it says in their condition Ready. Pure."""

from __future__ import annotations

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, dig, generation_of, new_condition, with_condition, without_condition
from apiserver.apis.virt.lifecycle import conditions, phases
from controller.reconcilers.actions import Action, Emit, WriteStatus
from controller.reconcilers.virtual_machines.observed import Observed


def status_of(seen: Observed) -> Object:
    """Return the machine's status, to be changed."""
    return dict(seen.vm.get("status") or {})


def ready(seen: Observed, status: str, reason: str, message: str) -> list[Object]:
    """Return the conditions with this Ready, of a machine that is not at rest: something is done for it again."""
    known = without_condition(dig(seen.vm, "status", "conditions"), conditions.STALLED)
    new = new_condition(seen.vm, conditions.READY, status, reason, message)
    return with_condition(known, new, now=times.to_rfc3339(seen.now))


def report(seen: Observed, status: str, reason: str, message: str, *, warn: bool, phase: str = "") -> tuple[Action, ...]:
    """Write a Ready of this status, and an Event that says the same; once."""
    new = {**status_of(seen), "conditions": ready(seen, status, reason, message)}
    if phase:
        new = {**phases.enter(new, phase, seen.now), "observedGeneration": generation_of(seen.vm)}
    return write(seen, new, Emit("Warning" if warn else "Normal", reason, message))


def write(seen: Observed, status: Object, *events: Emit) -> tuple[Action, ...]:
    """Write, and tell of it, only what is new: a plan for a machine that is as it should be is empty."""
    return (WriteStatus(status), *events) if status != (seen.vm.get("status") or {}) else ()
