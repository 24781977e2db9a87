"""Orders a set's machines for deletion, if it has too many. Pure.

Without a node before others, by phase, not ready before ready, with a lower deletion cost, from nodes with more machines of the set, ready
for a shorter time, younger.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from apiserver.apis.meta.objects import Object, annotations_of, uid_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.lifecycle.replica_sets import DELETION_COST
from controller.reconcilers.replica_sets import readiness

_RANKS: Final = {phases.RUNNING: 2, phases.UNKNOWN: 1}
_COST: Final = re.compile(r"-?(0|[1-9][0-9]{0,9})")
_LIMIT: Final = 1 << 31


def in_order(machines: Sequence[Object]) -> list[Object]:
    """Return the machines in the order of deletion, as a ReplicaSet chooses pods."""
    nodes = Counter(_node_of(vm) for vm in machines)

    def key(vm: Object) -> tuple[object, ...]:
        node, since = _node_of(vm), readiness.ready_since(vm)
        return (
            bool(node),
            _RANKS.get(phases.phase_of(vm), 0),
            since is not None,
            deletion_cost(vm),
            -nodes[node],
            -since.timestamp() if since is not None else 0.0,
            _newest_first(str(dig_vm(vm, "metadata", "creationTimestamp") or "")),
            uid_of(vm),
        )

    return sorted(machines, key=key)


def deletion_cost(vm: Object) -> int:
    """Return the deletion cost in the machine's annotation; 0 without a valid one."""
    given = annotations_of(vm).get(DELETION_COST, "")
    number = int(given) if _COST.fullmatch(given) else 0
    return number if -_LIMIT <= number < _LIMIT else 0


def _node_of(vm: Object) -> str:
    return str(dig_vm(vm, "status", "nodeName") or "")


def _newest_first(created: str) -> tuple[int, ...]:
    return tuple(-ord(each) for each in created)
