"""Labels, annotations, finalizers and names of objects that more than one process reads."""

from __future__ import annotations

import base64
import hashlib
import re
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
POD_LABELS: Final = (COMPONENT_LABEL, VM_NAME_LABEL, CREATED_BY_LABEL, MIGRATION_LABEL)
"""On a launcher pod those that are ours; all others are the machine's own."""
WORKLOAD_UPDATE_LABEL: Final = "kubevirt.io/workload-update"
"""On a Migration that virt-controller made because of an upgrade of the chart: ten characters that stand for virt-launcher's image."""
ATTEMPT_ANNOTATION: Final = "kubevirt.io/attempt"
SPEC_ANNOTATION: Final = "kubevirt.io/spec-hash"
"""On a launcher pod: a hash of the fields of the machine's spec that the pod and its domain are made from."""
GUEST_RUNNING_GATE: Final = "kubevirt.io/guest-running"
"""Type of a launcher pod's condition, and of the readiness gate that waits for it: the machine's guest runs in this very pod."""

VM_FINALIZER: Final = "kubevirt.io/virtual-machine"
MIGRATION_FINALIZER: Final = "kubevirt.io/migration"

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
HOSTNAME_SELECTOR: Final = "kubevirt.io/hostname"
"""Accepted in every nodeSelector of ours and translated to the label that each kubelet sets, ``kubernetes.io/hostname``."""

KVM_RESOURCE: Final = "devices.kubevirt.io/kvm"
TUN_RESOURCE: Final = "devices.kubevirt.io/tun"
MACVTAP_RESOURCE: Final = "devices.kubevirt.io/macvtap"
VHOST_VSOCK_RESOURCE: Final = "devices.kubevirt.io/vhost-vsock"

CPU_MODEL_LABELS: Final = "cpu-model.node.kubevirt.io/"
"""Prefix of labels on a Node, by the name of each CPU model of libvirt that guests with KVM can have there. The value is ``true``."""
CPU_FEATURE_LABELS: Final = "cpu-feature.node.kubevirt.io/"
"""The same by the name of each feature."""
HOST_MODEL_LABELS: Final = "host-model-cpu.node.kubevirt.io/"
"""The same by the one model that libvirt takes there for ``host-model``."""
HOST_MODEL_FEATURE_LABELS: Final = "host-model-required-features.node.kubevirt.io/"
"""The same by each feature that ``host-model`` has there beyond that model."""
CPU_LABELS: Final = (CPU_MODEL_LABELS, CPU_FEATURE_LABELS, HOST_MODEL_LABELS, HOST_MODEL_FEATURE_LABELS)
"""Prefixes of the labels that virt-handler writes onto its Node, the only ones that it may write."""

HANDLER_SIGNER: Final = f"{GROUP}/{HANDLER}"
"""``spec.signerName`` of the CertificateSigningRequests of virt-handlers; virt-controller signs them."""
HANDLER_USAGES: Final = ("digital signature", "server auth", "client auth")
"""``spec.usages`` of these requests."""
NODE_CLAIM: Final = "authentication.kubernetes.io/node-name"
"""Key of a user's extra under which kube-apiserver passes on the node that a service account's token is bound to (KEP-4193)."""
NODE_UID_CLAIM: Final = "authentication.kubernetes.io/node-uid"
"""The same for the uid that its Node had when the token was made."""

CONTAINER: Final = "compute"
"""The container of a launcher pod that holds virt-launcher, libvirtd and QEMU."""


_HANDLER_DOMAIN: Final = f".{HANDLER}"
_MAX_NODE_NAME: Final = 240
"""With the domain, what a server name may have: 253 characters (RFC 1035, 2.3.4)."""
_LABEL: Final = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NODE: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
"""RFC 1123, with labels of at most 63 characters. Kubernetes does not bound those of a node's name, but TLS libraries do."""


def _suffix(*parts: str) -> str:
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return base64.b32encode(digest)[:5].decode().lower()


def launcher_pod_name(vm_name: str, vm_uid: str, attempt: int) -> str:
    """Return the one name the pod of this start attempt can have: whoever creates it second gets AlreadyExists."""
    return f"virt-launcher-{vm_name}-{_suffix(vm_uid, str(attempt))}"


def handler_username(namespace: str) -> str:
    """Return the user name of virt-handler's service account in the installation's namespace."""
    return f"system:serviceaccount:{namespace}:{HANDLER}"


def handler_lease(node: str) -> str:
    """Return the name of the Lease that virt-handler of a node renews: its sign of life."""
    return f"{HANDLER}-{node}"


def node_lease_namespace(namespace: str) -> str:
    """Return the namespace of virt-handlers' Leases, beside that of the installation: who may write them writes nothing else."""
    return f"{namespace}-node-lease"


def target_pod_name(vm_name: str, migration_uid: str) -> str:
    """Return the one name that the target pod of an attempt of a Migration can have; the uid is the attempt's."""
    return f"virt-launcher-{vm_name}-{_suffix(migration_uid, 'target')}"


def handler_server_name(node: str) -> str:
    """Return the name in the certificate of virt-handler of a node, by which others verify whom they dialled: ``<node>.virt-handler``.

    Raises:
        ValueError: the name of the node fits into no certificate.
    """
    if len(node) > _MAX_NODE_NAME or not _NODE.fullmatch(node):
        raise ValueError(
            f"node {node[:64]!r} can have no certificate: its name must be of lower-case letters, digits, '-' and '.', "
            f"at most 63 characters between dots and {_MAX_NODE_NAME} in all"
        )
    return f"{node}{_HANDLER_DOMAIN}"


def node_of_server_name(name: str) -> str:
    """Return the node whose virt-handler has this name in its certificate; empty if it is no such name."""
    node = name.removesuffix(_HANDLER_DOMAIN)
    return node if node != name and len(node) <= _MAX_NODE_NAME and _NODE.fullmatch(node) else ""
