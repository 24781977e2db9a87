"""Ordinals of a VirtualMachineReplicaSet with ``spec.ordinals``: its machines are named ``SET-ORDINAL``, as a StatefulSet's pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.virt.kinds import dig_replica_set

Object = Mapping[str, Any]

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")


def has_ordinals(replica_set: Object) -> bool:
    """Return True if the set names its machines by ordinals."""
    return dig_replica_set(replica_set, "spec", "ordinals") is not None


def wanted(replica_set: Object) -> range:
    """Return the ordinals that the set should have."""
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


def _name_of(replica_set: Object) -> str:
    return str(dig_replica_set(replica_set, "metadata", "name") or "")
