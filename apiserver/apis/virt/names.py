"""Labels, annotations, finalizers and names of objects that more than one process reads."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

GROUP: Final = "kubevirt.io"
VERSION: Final = "v1alpha1"

COMPONENT_LABEL: Final = "kubevirt.io"
"""On our pods: ``virt-api``, ``virt-controller``, ``virt-handler`` or ``virt-launcher``."""
LAUNCHER: Final = "virt-launcher"
HANDLER: Final = "virt-handler"
VM_NAME_LABEL: Final = "vm.kubevirt.io/name"
CREATED_BY_LABEL: Final = "kubevirt.io/created-by"
"""On a launcher pod: the uid of its VirtualMachine."""
MIGRATION_LABEL: Final = "kubevirt.io/migration-uid"
"""On the target pod of a live migration: the uid of the Migration."""
ATTEMPT_ANNOTATION: Final = "kubevirt.io/attempt"

VM_FINALIZER: Final = "kubevirt.io/virtual-machine"
MIGRATION_FINALIZER: Final = "kubevirt.io/migration"

HOSTNAME_SELECTOR: Final = "kubevirt.io/hostname"
"""Accepted in every nodeSelector of ours and translated to the label that each kubelet sets, ``kubernetes.io/hostname``."""

KVM_RESOURCE: Final = "devices.kubevirt.io/kvm"
TUN_RESOURCE: Final = "devices.kubevirt.io/tun"

CONTAINER: Final = "compute"
"""The container of a launcher pod that holds virt-launcher, libvirtd and QEMU."""


def _suffix(*parts: str) -> str:
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return base64.b32encode(digest)[:5].decode().lower()


def launcher_pod_name(vm_name: str, vm_uid: str, attempt: int) -> str:
    """Return the one name the pod of this start attempt can have: whoever creates it second gets AlreadyExists."""
    return f"virt-launcher-{vm_name}-{_suffix(vm_uid, str(attempt))}"


def handler_lease(node: str) -> str:
    """Return the name of the Lease that virt-handler of a node renews: its sign of life."""
    return f"{HANDLER}-{node}"


def node_lease_namespace(namespace: str) -> str:
    """Return the namespace of virt-handlers' Leases, beside that of the installation: who may write them writes nothing else."""
    return f"{namespace}-node-lease"


def target_pod_name(vm_name: str, migration_uid: str) -> str:
    """Return the one name that the target pod of a Migration can have."""
    return f"virt-launcher-{vm_name}-{_suffix(migration_uid, 'target')}"
