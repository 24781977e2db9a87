"""Words of VirtualMachineReplicaSets that virt-api and virt-controller share. Pure."""

from __future__ import annotations

from typing import Final

REPLICA_FAILURE: Final = "ReplicaFailure"
"""Condition type, only while True: a machine could not be created or deleted, or finished machines wait to be replaced."""
FAILED_CREATE: Final = "FailedCreate"
FAILED_DELETE: Final = "FailedDelete"
BACK_OFF: Final = "BackOff"
"""``ReplicaFailure=True``."""
REPLICA_PAUSED: Final = "ReplicaPaused"
"""Condition type, only while True: ``spec.paused`` is true."""
PAUSED: Final = "Paused"
"""Its reason."""
RECONCILING: Final = "Reconciling"
"""Condition type, only while True: the set lacks replicas, or they are not available. kstatus (Helm 4, Flux) waits."""
REPLICAS_UNAVAILABLE: Final = "ReplicasUnavailable"
"""Its reason."""
CONDITION_TYPES: Final = (REPLICA_FAILURE, REPLICA_PAUSED, RECONCILING)
DELETION_COST: Final = "kubevirt.io/deletion-cost"
"""Annotation of a machine: a 32-bit integer, by default 0. Machines with a lower one are deleted first."""
REPLICATE: Final = "replicate"
"""The subresource that creates a machine from the template, for virt-controller."""
