"""Labels, annotations, finalizers and names that several processes read."""

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
GUARDIAN: Final = "virt-guardian"
VM_NAME_LABEL: Final = "vm.kubevirt.io/name"
CREATED_BY_LABEL: Final = "kubevirt.io/created-by"
"""On a launcher pod: its VirtualMachine's uid."""
MIGRATION_LABEL: Final = "kubevirt.io/migration-uid"
"""On a live migration's target pod: the Migration's uid."""
POD_LABELS: Final = (COMPONENT_LABEL, VM_NAME_LABEL, CREATED_BY_LABEL, MIGRATION_LABEL)
"""On a launcher pod."""
WORKLOAD_UPDATE_LABEL: Final = "kubevirt.io/workload-update"
"""On a Migration for a chart upgrade: ten characters that identify virt-launcher's image."""
ATTEMPT_ANNOTATION: Final = "kubevirt.io/attempt"
SPEC_ANNOTATION: Final = "kubevirt.io/spec-hash"
"""On a launcher pod: a hash of the spec's fields for pod and domain."""
GUEST_RUNNING_GATE: Final = "kubevirt.io/guest-running"
"""A launcher pod's readiness gate: the guest runs there."""

LEASE_NAMESPACE_ANNOTATION: Final = f"{GROUP}/node-lease-namespace"
"""On our APIService: the namespace of virt-handlers' Leases."""

VM_FINALIZER: Final = "kubevirt.io/virtual-machine"
MIGRATION_FINALIZER: Final = "kubevirt.io/migration"

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
HOSTNAME_SELECTOR: Final = "kubevirt.io/hostname"
"""In our ``nodeSelector``: translated to the kubelet's ``kubernetes.io/hostname``."""

KVM_RESOURCE: Final = "devices.kubevirt.io/kvm"
TUN_RESOURCE: Final = "devices.kubevirt.io/tun"
MACVTAP_RESOURCE: Final = "devices.kubevirt.io/macvtap"
VHOST_VSOCK_RESOURCE: Final = "devices.kubevirt.io/vhost-vsock"

CPU_MODEL_LABELS: Final = "cpu-model.node.kubevirt.io/"
"""Prefix of a Node's labels for KVM guests' CPU models. The value is ``true``."""
CPU_FEATURE_LABELS: Final = "cpu-feature.node.kubevirt.io/"
HOST_MODEL_LABELS: Final = "host-model-cpu.node.kubevirt.io/"
"""The same for libvirt's ``host-model`` there."""
HOST_MODEL_FEATURE_LABELS: Final = "host-model-required-features.node.kubevirt.io/"
CPU_LABELS: Final = (CPU_MODEL_LABELS, CPU_FEATURE_LABELS, HOST_MODEL_LABELS, HOST_MODEL_FEATURE_LABELS)
"""virt-handler may write no other labels on its Node."""

HANDLER_SIGNER: Final = f"{GROUP}/{HANDLER}"
"""Signer of virt-handlers' CertificateSigningRequests: virt-controller."""
HANDLER_USAGES: Final = ("digital signature", "server auth", "client auth")
"""``spec.usages`` of these requests."""
NODE_CLAIM: Final = "authentication.kubernetes.io/node-name"
"""Key in a user's extra: the node of a service account token (KEP-4193)."""
NODE_UID_CLAIM: Final = "authentication.kubernetes.io/node-uid"
"""The same for the Node's uid when the token was made."""

CONSOLE_CONTAINER: Final = "guest-console"
"""It logs the first serial port."""
CONTAINER: Final = "compute"
"""A launcher pod's container with virt-launcher, libvirtd and QEMU."""


_SUFFIX_LENGTH: Final = 5
_HANDLER_DOMAIN: Final = f".{HANDLER}"
_MAX_NODE_NAME: Final = 240
"""With the domain, a server name may have 253 characters (RFC 1035, 2.3.4)."""
_LABEL: Final = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NODE: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
"""RFC 1123, with labels of at most 63 characters, which TLS libraries require."""


def _suffix(*parts: str) -> str:
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return base64.b32encode(digest)[:_SUFFIX_LENGTH].decode().lower()


def launcher_pod_name(vm_name: str, vm_uid: str, attempt: int) -> str:
    """Return the fixed name of a machine's pod in an attempt, so a second creation fails."""
    return f"virt-launcher-{vm_name}-{_suffix(vm_uid, str(attempt))}"


def handler_username(namespace: str) -> str:
    """Return the user name of virt-handler's service account."""
    return f"system:serviceaccount:{namespace}:{HANDLER}"


def handler_lease(node: str) -> str:
    """Return the name of the Lease that a node's virt-handler renews, in :func:`node_lease_namespace`."""
    return f"{HANDLER}-{node}"


def guardian_lease(node: str) -> str:
    """Return the name of the Lease that a node's guardian renews."""
    return f"{GUARDIAN}-{node}"


def node_lease_namespace(namespace: str) -> str:
    """Return the namespace of virt-handlers' Leases, for our ``namespace``: separate, so their rights cover nothing else."""
    return f"{namespace}-node-lease"


def target_pod_name(vm_name: str, migration_uid: str) -> str:
    """Return the fixed name of a migration attempt's target pod; ``migration_uid`` is the attempt's own."""
    return f"virt-launcher-{vm_name}-{_suffix(migration_uid, 'target')}"


def attachment_pod_name(vm_name: str, pod_uid: str, disk: str, claim: str) -> str:
    """Return the fixed name of a disk's attachment pod for the guest in pod ``pod_uid``; ``claim``: result of ``hot_plug.content_of``."""
    return f"{_attachments(vm_name)}{_suffix(pod_uid, disk, claim)}"


def is_attachment_pod(name: str, vm_name: str) -> bool:
    """Return whether a name has the form of an attachment pod's, which mounts a disk of machine ``vm_name`` and has no guest.

    The guest's pod of a machine ``<vm_name>-volume`` has it too.
    """
    return name.startswith(_attachments(vm_name)) and len(name) == len(_attachments(vm_name)) + _SUFFIX_LENGTH


def _attachments(vm_name: str) -> str:
    return f"virt-launcher-{vm_name}-volume-"


def removal_pod_name(vm_name: str, vm_uid: str) -> str:
    """Return the fixed name of the pod that deletes a deleted machine's memory image."""
    return f"virt-launcher-{vm_name}-{_suffix(vm_uid, 'images')}"


def handler_server_name(node: str) -> str:
    """Return the server name in a virt-handler's certificate: ``<node>.virt-handler``.

    Raises:
        ValueError: the node's name is too long, or no DNS name in lower case.
    """
    if len(node) > _MAX_NODE_NAME or not _NODE.fullmatch(node):
        raise ValueError(
            f"node {node[:64]!r} cannot get a certificate: its name must consist of lower-case letters, digits, '-' and '.', "
            f"at most 63 characters between dots and {_MAX_NODE_NAME} in all"
        )
    return f"{node}{_HANDLER_DOMAIN}"


def node_of_server_name(name: str) -> str:
    """Return the node's name in a virt-handler's server name, or ""."""
    node = name.removesuffix(_HANDLER_DOMAIN)
    return node if node != name and len(node) <= _MAX_NODE_NAME and _NODE.fullmatch(node) else ""
