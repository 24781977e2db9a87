"""Selects the MigrationPolicy of a machine, and computes a migration's options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.meta import labels, quantity
from apiserver.apis.meta.objects import Object, dig, name_of

MIN_BANDWIDTH: Final = quantity.parse("1Mi")
MAX_BANDWIDTH: Final = quantity.parse("1Ti")
MAX_CONNECTIONS: Final = 4
"""For memory: a relay carries eight per migration."""
MAX_DOWNTIME_MILLISECONDS: Final = 60_000
MAX_TIMEOUT_PER_GIB: Final = 86_400
BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "maxDowntimeMilliseconds": (1, MAX_DOWNTIME_MILLISECONDS),
    "parallelConnections": (1, MAX_CONNECTIONS),
    "completionTimeoutPerGiB": (1, MAX_TIMEOUT_PER_GIB),
}
"""Minimum and maximum (inclusive)."""
GIB: Final = 1 << 30
COPY_SECONDS: Final = 3600
"""Maximum seconds added for copied disks: 400 GiB at 1 Gbit/s. A policy's ``completionTimeoutPerGiB`` applies without this limit."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The cluster's migration options, in bytes per second and in seconds."""

    bandwidth: str = "0"
    """Bytes per second as a quantity; 0: unlimited."""
    allow_auto_converge: bool = False
    allow_pause: bool = False
    completion_timeout_per_gib: int = 150
    """Seconds."""


NO_POLICY: Final[Object] = {}


def choose(policies: Iterable[Object], namespace_labels: Mapping[str, str], machine_labels: Mapping[str, str]) -> Object:
    """Return the MigrationPolicy for a machine, or ``NO_POLICY``.

    The one with the most terms in its selectors wins, then the first by name. Policies being deleted are ignored.
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
    """Return whether one of the policies depends on labels of a namespace."""
    return any(not _selectors(each)[0].is_everything for each in policies)


def options(policy: Object, memory_bytes: int, defaults: Defaults, *, copied_bytes: int = 0) -> dict[str, Any]:
    """Return ``status.options`` of a migration; ``policy`` is the machine's, or ``NO_POLICY``.

    ``copied_bytes``: of disks that the migration copies.
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
    allowed = quantity.parse(bandwidth).bytes
    return max(COPY_SECONDS, -(-2 * copied_bytes // allowed) if allowed else 0)


def _given(value: Any, default: Any) -> Any:  # noqa: ANN401 - any JSON value
    return default if value is None else value


def _selectors(policy: Object) -> tuple[labels.Selector, labels.Selector]:
    selectors = dig(policy, "spec", "selectors") or {}
    return labels.from_json(selectors.get("namespaceSelector")), labels.from_json(selectors.get("virtualMachineSelector"))
