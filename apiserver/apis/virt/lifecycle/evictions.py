"""Eviction of machines' pods: the strategies, and the marks of migrations that an eviction caused. Pure."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, cast, get_args

from apiserver.apis.meta.objects import NamespacedName, Object, annotations_of, dig, labels_of, namespace_of
from apiserver.apis.virt.places import names

Strategy: TypeAlias = Literal["LiveMigrate", "LiveMigrateIfPossible", "Shutdown", "External"]

LIVE_MIGRATE: Final = "LiveMigrate"
LIVE_MIGRATE_IF_POSSIBLE: Final = "LiveMigrateIfPossible"
SHUTDOWN: Final = "Shutdown"
EXTERNAL: Final = "External"

POD_LABEL: Final = "kubevirt.io/evicted-pod"
"""On a Migration that an eviction caused: the uid of the pod."""
NODE_ANNOTATION: Final = "kubevirt.io/evicted-from"
"""On such a Migration: the node of that pod."""
DRAIN_LABEL: Final = "kubevirt.io/drain"
"""On such a Migration, "true": somebody was emptying that node."""


def strategy_of(vm: Object) -> Strategy | None:
    """Return ``spec.evictionStrategy``; None: the machine has the cluster's, as for a value that a later release stored."""
    found = dig(vm, "spec", "evictionStrategy")
    return cast("Strategy", found) if found in get_args(Strategy) else None


def not_known(pod: str) -> str:
    """Return what is said of the eviction of a pod that cannot be judged now."""
    return f"whether pod {pod} may be evicted is not known now; ask again"


def is_by_controller(migration: Object) -> bool:
    """Return whether virt-controller made a Migration, because of an eviction or of an upgrade."""
    return not {POD_LABEL, names.WORKLOAD_UPDATE_LABEL}.isdisjoint(labels_of(migration))


def machine_of(migration: Object) -> NamespacedName:
    """Return the machine that a Migration moves; its name is empty where the Migration names none."""
    return NamespacedName(namespace_of(migration), str(dig(migration, "spec", "selector", "name") or ""))


def node_left_by(migration: Object) -> str:
    """Return the node that a Migration leaves, or an empty string while nobody has written it down."""
    return str(dig(migration, "status", "sourceNode") or annotations_of(migration).get(NODE_ANNOTATION, ""))
