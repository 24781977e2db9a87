"""The order in which machines of lost nodes restart: by priority, and a limited number at a time. Pure.

A large failure ends many machines within seconds. If all started at once, the nodes that are left would pull images and read disks for all
of them, and those of low priority could take the room. So each waits a moment until the others are known, and then for its turn. A machine
that waits for something else does not keep the others back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import NamespacedName, Object, condition, key_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, node_loss, phases, power
from controller.reconcilers.settings import Restarts

QUEUED: Final = "RestartQueued"
MAX_WAIT_SECONDS: Final = 30.0
"""Time until a machine at the end of a long queue looks again: each look compares it with all others."""

Priorities: TypeAlias = Mapping[str, int]
"""The values of PriorityClasses by name; the empty name is the default class."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The machines of lost nodes."""

    machines: tuple[Object, ...] = ()
    """All with the condition NodeLost, waiting or restarted."""
    priorities: Priorities = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of a machine that waits."""

    ahead: int
    """Machines that start before it."""
    seconds: float
    """Time until another look."""


def turn(vm: Object, queue: Queue, limits: Restarts, now: datetime) -> Turn | None:
    """Return the machine's place in the queue; None if it may start."""
    settles = limits.settle_seconds - _age(vm, now)
    if settles > 0:
        return Turn(0, settles)
    others = [each for each in queue.machines if key_of(each) != key_of(vm)]
    recent = [age for each in others if not node_loss.is_lost(each) and (age := _age(each, now)) < limits.seconds]
    ahead = sum(_order(each, queue.priorities) < _order(vm, queue.priorities) for each in others if _waits_for_turn(each))
    if len(recent) + ahead < limits.batch:
        return None
    seconds = limits.seconds * (1 + ahead // limits.batch) - max(recent, default=0.0)
    return Turn(ahead, min(max(seconds, 1.0), MAX_WAIT_SECONDS))


def _waits_for_turn(vm: Object) -> bool:
    """Return True if nothing else than its turn keeps the machine from starting, as far as its last status tells."""
    reason = str((condition(dig_vm(vm, "status", "conditions"), conditions.READY) or {}).get("reason"))
    is_next = reason == QUEUED or (phases.phase_of(vm) in phases.ENDED and reason.startswith("Attempt"))
    return is_next and node_loss.is_lost(vm) and power.decide(vm).on


def _order(vm: Object, priorities: Priorities) -> tuple[int, str, NamespacedName]:
    """Return the sort key: high priority first, then the machine that was lost first."""
    name = str(dig_vm(vm, "spec", "priorityClassName") or "")
    return -priorities.get(name, 0), _since(vm), key_of(vm)


def _since(vm: Object) -> str:
    return str((condition(dig_vm(vm, "status", "conditions"), conditions.NODE_LOST) or {}).get("lastTransitionTime") or "")


def _age(vm: Object, now: datetime) -> float:
    try:
        return max((now - times.parse(_since(vm))).total_seconds(), 0.0)
    except ValueError:
        return float("inf")


def priorities_of(classes: Iterable[Object]) -> dict[str, int]:
    """Return the values of PriorityClasses."""
    found: dict[str, int] = {}
    for each in classes:
        value = each.get("value")
        if isinstance(value, int):
            found[str(each["metadata"]["name"])] = value
            if each.get("globalDefault"):
                found[""] = value
    return found
