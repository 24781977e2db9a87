"""Conditions and names of VirtualMachineReplicaSets that virt-api and virt-controller share."""

from __future__ import annotations

from typing import Final

REPLICA_FAILURE: Final = "ReplicaFailure"
"""Only True: creating, updating or deleting a machine failed, or finished machines wait to be replaced."""
FAILED_CREATE: Final = "FailedCreate"
FAILED_DELETE: Final = "FailedDelete"
FAILED_UPDATE: Final = "FailedUpdate"
BACK_OFF: Final = "BackOff"
"""``ReplicaFailure=True``."""
REPLICA_PAUSED: Final = "ReplicaPaused"
"""Only True: ``spec.paused`` is true."""
PAUSED: Final = "Paused"
"""Its reason."""
RECONCILING: Final = "Reconciling"
"""Only True: replicas are missing or unavailable. kstatus (Helm 4, Flux) waits."""
REPLICAS_UNAVAILABLE: Final = "ReplicasUnavailable"
"""Its reason."""
CONDITION_TYPES: Final = (REPLICA_FAILURE, REPLICA_PAUSED, RECONCILING)
DELETION_COST: Final = "kubevirt.io/deletion-cost"
"""On a machine: a 32-bit integer, by default 0. Machines with a lower one are deleted first."""
REPLICATE: Final = "replicate"
"""virt-controller's subresource that creates a machine from the template."""
ROLLOUT: Final = "rollout"
"""virt-controller's subresource that gives a machine the template, or restarts it for that."""
