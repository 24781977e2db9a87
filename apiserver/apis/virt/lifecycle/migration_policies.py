"""Chooses the MigrationPolicy of a machine, and makes the options of one migration of it. Pure.

Policies are plain JSON of sound structure (:func:`apiserver.apis.virt.structure.of_migration_policy`). What comes of one is written into
``status.options`` of the Migration when that begins, so that nobody's later edit changes what is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.meta import labels, quantity
from apiserver.apis.meta.objects import Object, dig, name_of

MIN_BANDWIDTH: Final = quantity.parse("1Mi")
MAX_BANDWIDTH: Final = quantity.parse("1Ti")
MAX_CONNECTIONS: Final = 4
"""Connections that carry memory: a relay carries eight of a migration, among them libvirt's and QEMU's own, and those of a next attempt."""
MAX_DOWNTIME_MILLISECONDS: Final = 60_000
MAX_TIMEOUT_PER_GIB: Final = 86_400
BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "maxDowntimeMilliseconds": (1, MAX_DOWNTIME_MILLISECONDS),
    "parallelConnections": (1, MAX_CONNECTIONS),
    "completionTimeoutPerGiB": (1, MAX_TIMEOUT_PER_GIB),
}
"""Least and most of the numbers of a policy, both allowed."""
GIB: Final = 1 << 30
COPY_SECONDS: Final = 3600
"""Seconds that disks copied along add at most, whatever their sizes: who sizes a blank disk need not fill it, and these are sent once.

A gigabit a second moves 400 GiB in it. A policy that says ``completionTimeoutPerGiB`` is the operator's word, and holds for disks, too.
"""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The cluster's options of migrations, for what no policy says."""

    bandwidth: str = "0"
    """Bytes per second as a quantity; 0: no limit."""
    allow_auto_converge: bool = False
    allow_pause: bool = False
    completion_timeout_per_gib: int = 150
    """Seconds."""


NO_POLICY: Final[Object] = {}


def choose(policies: Iterable[Object], namespace_labels: Mapping[str, str], machine_labels: Mapping[str, str]) -> Object:
    """Return the policy that holds for a machine, ``NO_POLICY`` if none does.

    Of those that choose it the one with the most conditions, of equal ones the first by name; one that is being deleted holds no more.
    """
    found: list[tuple[int, str, Object]] = []
    for each in policies:
        of_namespace, of_machine = _selectors(each)
        if (
            dig(each, "metadata", "deletionTimestamp") is None
            and of_namespace.matches(namespace_labels)
            and of_machine.matches(machine_labels)
        ):
            found.append((-len(of_namespace.requirements) - len(of_machine.requirements), name_of(each), each))
    return min(found, key=lambda each: each[:2])[2] if found else NO_POLICY


def asks_for_namespaces(policies: Iterable[Object]) -> bool:
    """Return whether labels of a namespace matter to any of these policies."""
    return any(not _selectors(each)[0].is_everything for each in policies)


def options(policy: Object, memory_bytes: int, defaults: Defaults, *, copied_bytes: int = 0) -> dict[str, Any]:
    """Return ``status.options`` of a migration.

    Args:
        policy: the one that holds, or ``NO_POLICY``.
        memory_bytes: of the guest that is moved.
        defaults: the cluster's.
        copied_bytes: the sizes of the disks that are copied along.
    """
    spec = policy.get("spec") or {}
    completion = spec.get("completionTimeoutPerGiB")
    per_gib, bandwidth = _given(completion, defaults.completion_timeout_per_gib), str(_given(spec.get("bandwidth"), defaults.bandwidth))
    seconds = per_gib * _gibibytes(memory_bytes + copied_bytes)
    if completion is None:
        seconds = min(seconds, per_gib * _gibibytes(memory_bytes) + _copying_seconds(copied_bytes, bandwidth))
    found = {
        "bandwidth": bandwidth,
        "maxDowntimeMilliseconds": spec.get("maxDowntimeMilliseconds"),
        "parallelConnections": spec.get("parallelConnections"),
        "allowAutoConverge": _given(spec.get("allowAutoConverge"), defaults.allow_auto_converge),
        "allowPause": _given(spec.get("allowPause"), defaults.allow_pause),
        "completionTimeoutSeconds": seconds,
    }
    return {name: value for name, value in found.items() if value is not None}


def _gibibytes(amount: int) -> int:
    return max(-(-amount // GIB), 1)


def _copying_seconds(copied_bytes: int, bandwidth: str) -> int:
    """Return what disks of these sizes add at most: twice what they take at the bandwidth that the operator allows, if that is longer."""
    allowed = quantity.parse(bandwidth).bytes
    return max(COPY_SECONDS, -(-2 * copied_bytes // allowed) if allowed else 0)


def _given(value: Any, default: Any) -> Any:  # noqa: ANN401 - any JSON value
    return default if value is None else value


def _selectors(policy: Object) -> tuple[labels.Selector, labels.Selector]:
    selectors = dig(policy, "spec", "selectors") or {}
    return labels.from_json(selectors.get("namespaceSelector")), labels.from_json(selectors.get("virtualMachineSelector"))
