"""Checks our kinds' structure for processes that read plain JSON. Errors are sentences with the path.

``make fields`` writes the shapes of ``spec`` and ``status`` to ``structure.json``, so pydantic is not imported. Shapes without a model
are here: metadata, and the affinity that virt-controller reads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from apiserver.apis.meta.structure import Check, anything, check_of, integer, items, members, sentences, text, texts, time

_METADATA: Final = members(
    {
        "name": text,
        "namespace?": text,
        "uid?": text,
        "resourceVersion?": text,
        "generation?": integer(64),
        "labels?": texts,
        "annotations?": texts,
        "finalizers?": items(text),
        "creationTimestamp?": time,
        "deletionTimestamp?": time,
        "deletionGracePeriodSeconds?": integer(64),
    }
)
_REQUIREMENTS: Final = items(members({"key": text, "operator": text, "values?": items(text)}))
_NODE_TERMS: Final = items(members({"matchExpressions?": _REQUIREMENTS, "matchFields?": _REQUIREMENTS}))
_NODE_AFFINITY: Final = members(
    {
        "requiredDuringSchedulingIgnoredDuringExecution?": members({"nodeSelectorTerms?": _NODE_TERMS}),
        "preferredDuringSchedulingIgnoredDuringExecution?": items(anything),
    }
)
_AFFINITY: Final = members({"nodeAffinity?": _NODE_AFFINITY})


def _of_kinds() -> tuple[Check, Check, Check, Check, Check]:
    def of_other(shape: Any) -> Check:  # noqa: ANN401  # JSON
        return members({"metadata": _METADATA, **{name: check_of(each) for name, each in shape.items()}})

    shapes = json.loads(Path(__file__).with_suffix(".json").read_bytes())
    machine = shapes["VirtualMachine"]
    spec = {name: check_of(shape) for name, shape in machine["spec"].items()}
    running = {name: spec.get(name) or check_of(shape) for name, shape in machine["status?"].pop("running?").items()}
    domain = spec["domain?"]
    whole = {
        "metadata": _METADATA,
        "spec": members({**spec, "affinity?": _AFFINITY}),
        "status?": members({**{name: check_of(shape) for name, shape in machine["status?"].items()}, "running?": members(running)}),
    }
    return (
        members(whole),
        members({"spec": members({"domain?": domain}), "status?": members({"running?": members({"domain?": domain})})}),
        of_other(shapes["Migration"]),
        of_other(shapes["MigrationPolicy"]),
        of_other(shapes["VirtualMachineReplicaSet"]),
    )


VIRTUAL_MACHINE, _WITH_DOMAIN, MIGRATION, MIGRATION_POLICY, REPLICA_SET = _of_kinds()
_WITH_METADATA: Final = members({"metadata": _METADATA})


def of_virtual_machine(vm: Any) -> tuple[str, ...]:  # noqa: ANN401  # whether it is an object is the question
    """Return a VirtualMachine's faults as sentences; empty if sound."""
    return sentences(VIRTUAL_MACHINE(vm))


def of_metadata(obj: Any) -> tuple[str, ...]:  # noqa: ANN401  # as above
    """Return the faults of an object's metadata as sentences."""
    return sentences(_WITH_METADATA(obj))


def has_sound_domain(vm: Any) -> bool:  # noqa: ANN401  # as above
    """Return whether ``spec.domain`` and the domain in ``status.running`` have the types that readers expect."""
    return not _WITH_DOMAIN(vm)


def of_migration(migration: Any) -> tuple[str, ...]:  # noqa: ANN401  # as above
    """Return a Migration's faults as sentences; empty if valid."""
    return sentences(MIGRATION(migration))


def of_migration_policy(policy: Any) -> tuple[str, ...]:  # noqa: ANN401  # as above
    """Return a MigrationPolicy's faults as sentences."""
    return sentences(MIGRATION_POLICY(policy))


def of_replica_set(replica_set: Any) -> tuple[str, ...]:  # noqa: ANN401  # as above
    """Return a VirtualMachineReplicaSet's faults as sentences, except its template's spec's."""
    return sentences(REPLICA_SET(replica_set))
