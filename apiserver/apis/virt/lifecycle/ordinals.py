"""Ordinals of a VirtualMachineReplicaSet with ``spec.ordinals``: its machines are named ``SET-ORDINAL``, as a StatefulSet's pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.virt.kinds import dig_replica_set

Object = Mapping[str, Any]

RETAIN: Final = "Retain"
DELETE: Final = "Delete"
WHEN_DELETED: Final = "whenDeleted"
WHEN_SCALED: Final = "whenScaled"
SET_LABEL: Final = "kubevirt.io/replica-set-uid"
"""On a claim: the uid of the set that created it."""
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")


def has_ordinals(replica_set: Object) -> bool:
    """Return True if the set names its machines by ordinals."""
    return dig_replica_set(replica_set, "spec", "ordinals") is not None


def wanted(replica_set: Object) -> range:
    """Return the ordinals that the set should have: one per replica, from ``ordinals.start``."""
    start = dig_replica_set(replica_set, "spec", "ordinals", "start") or 0
    replicas = dig_replica_set(replica_set, "spec", "replicas")
    return range(start, start + (1 if replicas is None else replicas))


def machine_name(replica_set: Object, ordinal: int) -> str:
    """Return the name of the set's machine with this ordinal."""
    return f"{_name_of(replica_set)}-{ordinal}"


def ordinal_of(replica_set: Object, name: str) -> int | None:
    """Return the ordinal in a machine's name; None if the name is not one of the set's."""
    parent, _, number = name.rpartition("-")
    return int(number) if parent == _name_of(replica_set) and _NUMBER.fullmatch(number) else None


def claim_templates(replica_set: Object) -> list[dict[str, Any]]:
    """Return ``spec.volumeClaimTemplates``; empty if unset."""
    found: list[Any] = dig_replica_set(replica_set, "spec", "volumeClaimTemplates") or []
    return found


def claim_name(replica_set: Object, template: Object, ordinal: int) -> str:
    """Return the name of the claim from a template for the machine with this ordinal, as a StatefulSet names it."""
    return f"{template['metadata']['name']}-{machine_name(replica_set, ordinal)}"


def ordinal_of_claim(replica_set: Object, name: str) -> int | None:
    """Return the ordinal in a claim's name; None if the name is not one of the set's."""
    for each in claim_templates(replica_set):
        prefix = f"{each['metadata']['name']}-"
        if name.startswith(prefix) and (found := ordinal_of(replica_set, name.removeprefix(prefix))) is not None:
            return found
    return None


def retention(replica_set: Object, when: str) -> str:
    """Return what happens to the set's claims at ``whenDeleted`` or ``whenScaled``: ``Retain`` (default) or ``Delete``."""
    return str(dig_replica_set(replica_set, "spec", "persistentVolumeClaimRetentionPolicy", when) or RETAIN)


def _name_of(replica_set: Object) -> str:
    return str(dig_replica_set(replica_set, "metadata", "name") or "")
