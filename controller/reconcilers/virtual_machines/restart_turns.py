"""The order in which machines of lost nodes restart: by priority, and a limited number at a time. Pure.

Otherwise the remaining nodes would start all at once, and machines of low priority could take the room. Each waits a moment until the
others are known, and then for its turn. A machine that waits for something else delays no other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final, TypeAlias

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import NamespacedName, Object, condition, key_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, node_loss, phases, power
from controller.reconcilers.settings import Restarts

QUEUED: Final = "RestartQueued"
MAX_WAIT_SECONDS: Final = 30.0
Order: TypeAlias = tuple[int, str, NamespacedName]
Priorities: TypeAlias = Mapping[str, int]
"""By name; the empty name is the default class."""


@dataclass(frozen=True)  # without slots, for the cached properties
class Queue:
    """The machines of lost nodes, sorted once for all passes."""

    machines: tuple[Object, ...] = ()
    """With the condition NodeLost, waiting or restarted."""
    priorities: Priorities = field(default_factory=dict)

    @cached_property
    def waiting(self) -> list[Order]:
        """Return the sort keys of the machines that wait for their turn, in order."""
        return sorted(_order(each, self.priorities) for each in self.machines if _waits_for_turn(each))

    @cached_property
    def restarts(self) -> list[tuple[datetime, NamespacedName]]:
        """Return when machines of lost nodes restarted, with their names, newest first."""
        restarted = [each for each in self.machines if not node_loss.is_lost(each)]
        return sorted(((moment, key_of(each)) for each in restarted if (moment := times.parsed(_written(each)))), reverse=True)

    def recent(self, vm: Object, seconds: float, now: datetime) -> Iterator[float]:
        """Yield the ages of other machines' restarts that are younger than ``seconds``, youngest first."""
        for moment, key in self.restarts:
            if (age := (now - moment).total_seconds()) >= seconds:
                return
            if key != key_of(vm):
                yield max(age, 0.0)


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of a waiting machine in the order of restarts; look again after ``seconds``."""

    ahead: int
    """Machines that start before it."""
    seconds: float


def turn(vm: Object, queue: Queue, limits: Restarts, now: datetime) -> Turn | None:
    """Return how many machines start first, and the seconds to wait; None if the machine may start."""
    settles = limits.settle_seconds - _age(vm, now)
    if settles > 0:
        return Turn(0, settles)
    recent = list(queue.recent(vm, limits.seconds, now))
    ahead = bisect_left(queue.waiting, _order(vm, queue.priorities))
    if len(recent) + ahead < limits.batch:
        return None
    seconds = limits.seconds * (1 + ahead // limits.batch) - max(recent, default=0.0)
    return Turn(ahead, min(max(seconds, 1.0), MAX_WAIT_SECONDS))


def _waits_for_turn(vm: Object) -> bool:
    """Return whether only its turn keeps the lost machine from starting, by its last status."""
    reason = str((condition(dig_vm(vm, "status", "conditions"), conditions.READY) or {}).get("reason"))
    is_next = reason == QUEUED or (phases.phase_of(vm) in phases.ENDED and reason.startswith("Attempt"))
    return is_next and node_loss.is_lost(vm) and power.decide(vm).on


def _order(vm: Object, priorities: Priorities) -> Order:
    name = str(dig_vm(vm, "spec", "priorityClassName") or "")
    return -priorities.get(name, 0), _written(vm), key_of(vm)


def _written(vm: Object) -> str:
    return str((condition(dig_vm(vm, "status", "conditions"), conditions.NODE_LOST) or {}).get("lastTransitionTime") or "")


def _age(vm: Object, now: datetime) -> float:
    since = times.parsed(_written(vm))
    return float("inf") if since is None else max((now - since).total_seconds(), 0.0)


def priorities_of(classes: Iterable[Object]) -> dict[str, int]:
    """Return the values of PriorityClasses by name; that of the default class also under an empty name."""
    found: dict[str, int] = {}
    for each in classes:
        value = each.get("value")
        if isinstance(value, int):
            found[str(each["metadata"]["name"])] = value
            if each.get("globalDefault"):
                found[""] = value
    return found
