"""Trials of non-operational nodes: after a pause, one start at a time may go to the node. No I/O.

The turns are in memory: another leader may allow one more start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.objects import NamespacedName, Object, key_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import power
from controller.reconcilers.virtual_machines.observed import Observed

TURN_SECONDS: Final = 600.0
"""Longest turn: the pod may find room on no node."""


@dataclass(frozen=True, slots=True)
class _Turn:
    machine: NamespacedName
    attempt: int
    since: float


class Trials:
    """Turns to start on nodes on trial, one machine for each node."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._turns: dict[str, _Turn] = {}

    def take(self, seen: Observed, machine: Callable[[str, str], Object | None]) -> frozenset[str]:
        """Return the nodes on trial that this machine's next attempt may try; it has their turns now.

        ``machine`` returns a machine by namespace and name.
        """
        key, attempt = key_of(seen.vm), power.decide(seen.vm).attempt
        on_trial = [name for name, verdict in seen.non_operational.items() if verdict.is_on_trial(seen.now)]
        free = frozenset(name for name in on_trial if self._is_free(name, key, machine))
        self._turns |= {name: _Turn(key, attempt, self._elapsed()) for name in free}
        return free

    def _is_free(self, node: str, key: NamespacedName, machine: Callable[[str, str], Object | None]) -> bool:
        turn = self._turns.get(node)
        if turn is None or turn.machine == key or self._elapsed() - turn.since >= TURN_SECONDS:
            return True
        vm = machine(turn.machine.namespace, turn.machine.name)
        return vm is None or is_decided(vm, turn.attempt, node)


def is_decided(vm: Object, attempt: int, node: str) -> bool:
    """Return whether it is known if the machine's attempt starts on the node: it ran, ended, went elsewhere, or will not begin."""
    current, newest = power.current_attempt(vm), power.newest_attempt(vm)
    if current < attempt:
        return not power.decide(vm).on
    place = str(newest.get("nodeName") or dig_vm(vm, "status", "nodeName") or node)
    return current > attempt or bool(newest.get("runningTime")) or power.has_ended(newest) or place != node
