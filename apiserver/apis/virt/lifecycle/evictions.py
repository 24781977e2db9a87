"""Eviction of machines' pods: strategies, and labels of migrations."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, cast, get_args

from apiserver.apis.meta.objects import NamespacedName, Object, annotations_of, labels_of, namespace_of
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.places import names

Strategy: TypeAlias = Literal["LiveMigrate", "LiveMigrateIfPossible", "Shutdown", "External"]

LIVE_MIGRATE: Final = "LiveMigrate"
LIVE_MIGRATE_IF_POSSIBLE: Final = "LiveMigrateIfPossible"
SHUTDOWN: Final = "Shutdown"
EXTERNAL: Final = "External"

POD_LABEL: Final = "kubevirt.io/evicted-pod"
"""On a Migration for an eviction: the pod's uid."""
NODE_ANNOTATION: Final = "kubevirt.io/evicted-from"
"""On such a Migration: that pod's node."""
DRAIN_LABEL: Final = "kubevirt.io/drain"
"""On such a Migration: "true" if that node was being drained."""


def strategy_of(vm: Object) -> Strategy | None:
    """Return ``spec.evictionStrategy``; None (the cluster's) if unset or of a later version."""
    found = dig_vm(vm, "spec", "evictionStrategy")
    return cast("Strategy", found) if found in get_args(Strategy) else None


def not_known(pod: str) -> str:
    """Return the message that this pod's eviction cannot be decided now."""
    return f"cannot decide now whether pod {pod} may be evicted; retry the eviction"


def is_by_controller(migration: Object) -> bool:
    """Return whether virt-controller created the Migration."""
    return not {POD_LABEL, names.WORKLOAD_UPDATE_LABEL}.isdisjoint(labels_of(migration))


def machine_of(migration: Object) -> NamespacedName:
    """Return namespace and name of a Migration's machine; the name may be empty."""
    return NamespacedName(namespace_of(migration), str(dig_migration(migration, "spec", "selector", "name") or ""))


def node_left_by(migration: Object) -> str:
    """Return a Migration's source node, by status or else annotation, or ""."""
    return str(dig_migration(migration, "status", "sourceNode") or annotations_of(migration).get(NODE_ANNOTATION, ""))
