"""The rights of virt-controller at kube-apiserver, by the part of the process that uses them.

:data:`controller.manager.loops.LOOPS` has the loops' rights. ``controller/rbac.md`` gives the reason for each right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from apiserver.apis.virt.places import names
from controller.reconcilers.certificates.consumers import API_SERVICE_NAMES

Scope: TypeAlias = Literal["cluster", "installation", "node leases"]
"""All namespaces, the installation's, or that of the nodes' leases."""


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs, separated by spaces, on one resource, as a Role grants them."""

    group: str
    resource: str
    verbs: str
    names: tuple[str, ...] = ()
    """Empty: all objects."""
    scope: Scope = "cluster"


_SECRETS: Final = (
    "kubevirt-ca",
    "kubevirt-virt-api-tls",
    "kubevirt-virt-controller-tls",
    "kubevirt-etcd-ca",
    "kubevirt-etcd-server-tls",
    "kubevirt-etcd-client-tls",
)
_REQUESTS: Final = "certificatesigningrequests"

PARTS: Final[Mapping[str, tuple[Right, ...]]] = MappingProxyType(
    {
        "leader election": (
            Right("coordination.k8s.io", "leases", "create", scope="installation"),
            Right("coordination.k8s.io", "leases", "get update", ("virt-controller",), scope="installation"),
        ),
        "recorder": (Right("", "events", "create patch"),),
        "certificates": (
            Right("", "secrets", "create", scope="installation"),
            Right("", "secrets", "get update delete", _SECRETS, scope="installation"),
            Right("", "secrets", "delete", ("kubevirt-virt-handler-tls",), scope="installation"),
            Right("", "configmaps", "create", scope="installation"),
            Right("", "configmaps", "get patch", ("kubevirt-trust",), scope="installation"),
            Right("apps", "statefulsets", "get patch", ("kubevirt-etcd",), scope="installation"),
            Right("apiregistration.k8s.io", "apiservices", "get patch", API_SERVICE_NAMES),
            Right("admissionregistration.k8s.io", "validatingwebhookconfigurations", "get update", (f"evictions.{names.GROUP}",)),
        ),
        "signing of nodes' certificates": (
            Right("certificates.k8s.io", _REQUESTS, "list watch"),
            Right("certificates.k8s.io", f"{_REQUESTS}/approval", "update"),
            Right("certificates.k8s.io", f"{_REQUESTS}/status", "update"),
            Right("certificates.k8s.io", "signers", "approve sign", (names.HANDLER_SIGNER,)),
            Right("", "configmaps", "get", ("kubevirt-trust",), scope="installation"),
        ),
        "label of the namespace": (Right("", "namespaces", "get patch", ("kubevirt",)),),
        "admission of evictions": (
            Right("", "pods", "get"),
            Right("", "persistentvolumeclaims", "list"),
            Right("", "nodes", "list"),
            Right(names.GROUP, "virtualmachines", "get"),
            Right(names.GROUP, "virtualmachines/status", "patch"),
            Right(names.GROUP, "migrations", "create list watch"),
            Right("admissionregistration.k8s.io", "validatingwebhookconfigurations", "get", (f"evictions.{names.GROUP}",)),
        ),
        "secret in the path of the evictions' webhook": (
            Right("admissionregistration.k8s.io", "validatingwebhookconfigurations", "get update", (f"evictions.{names.GROUP}",)),
        ),
    }
)
