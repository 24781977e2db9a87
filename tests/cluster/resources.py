from __future__ import annotations

from typing import Final

from apiserver.apis.core import resources as core
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places import resources as virt

_RBAC: Final = "rbac.authorization.k8s.io"
_RESOURCES: Final = (
    virt.VIRTUAL_MACHINES,
    virt.MIGRATIONS,
    virt.MIGRATION_POLICIES,
    virt.REPLICA_SETS,
    core.PODS,
    core.EVENTS,
    core.SECRETS,
    core.CONFIG_MAPS,
    core.NAMESPACES,
    core.NODES,
    core.PERSISTENT_VOLUME_CLAIMS,
    core.RESOURCE_QUOTAS,
    core.LEASES,
    core.API_SERVICES,
    core.CERTIFICATE_SIGNING_REQUESTS,
    core.TOKEN_REVIEWS,
    core.VALIDATING_WEBHOOK_CONFIGURATIONS,
    core.MUTATING_WEBHOOK_CONFIGURATIONS,
    core.VALIDATING_POLICIES,
    core.VALIDATING_POLICY_BINDINGS,
    core.MUTATING_POLICIES,
    core.MUTATING_POLICY_BINDINGS,
    Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False),
    Resource("", "v1", "services", "Service"),
    Resource("", "v1", "serviceaccounts", "ServiceAccount"),
    Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    Resource("apps", "v1", "daemonsets", "DaemonSet"),
    Resource("apps", "v1", "deployments", "Deployment"),
    Resource("apps", "v1", "statefulsets", "StatefulSet"),
    Resource("apps", "v1", "replicasets", "ReplicaSet"),
    Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    Resource("batch", "v1", "jobs", "Job"),
    Resource("batch", "v1", "cronjobs", "CronJob"),
    Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    Resource("k8s.cni.cncf.io", "v1", "network-attachment-definitions", "NetworkAttachmentDefinition"),
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False),
    Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False),
    Resource(_RBAC, "v1", "roles", "Role"),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
)
_SHORT: Final = {
    "vm": "virtualmachines",
    "vms": "virtualmachines",
    "vmmig": "migrations",
    "claims": "persistentvolumeclaims",
    "pvc": "persistentvolumeclaims",
    "pv": "persistentvolumes",
    "pdb": "poddisruptionbudgets",
    "csr": "certificatesigningrequests",
}
_BY_NAME: Final = {each.plural: each for each in _RESOURCES} | {each.kind.lower(): each for each in _RESOURCES}


def named(name: str) -> Resource:
    found = _BY_NAME.get(_SHORT.get(name, name))
    if found is None:
        raise ValueError(f"tests/cluster/resources.py has no resource {name!r}")
    return found


def of(manifest: Object) -> Resource:
    return named(str(manifest["kind"]).lower())
