"""The chart's objects on a control plane without pods: rights, policies and Services; the containers' arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.fakes import chart
from tests.reference_server.environment import Environment

NAMESPACE: Final = "kubevirt"
LEASES: Final = "kubevirt-node-lease"
_PATHS: Final = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "APIService": "/apis/apiregistration.k8s.io/v1/apiservices",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "PriorityLevelConfiguration": "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
    "FlowSchema": "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
}


def install(here: Environment, api_port: int, webhook_port: int) -> None:
    """Create the chart's objects; kube-apiserver calls virt-api and virt-controller at these ports of loopback."""
    here.ensure(_PATHS["Namespace"], {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for name in ("virt-api", "virt-controller"):
        here.ensure(f"/api/v1/namespaces/{NAMESPACE}/services", _local(name))
    for each in chart.objects():
        if each["kind"] in _PATHS:
            here.ensure(_PATHS[each["kind"]].format(each["metadata"].get("namespace")), at_ports(each, api_port, webhook_port))


def _local(name: str) -> dict[str, Any]:
    spec = {"type": "ExternalName", "externalName": "localhost"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def at_ports(obj: dict[str, Any], api_port: int, webhook_port: int) -> dict[str, Any]:
    """Return an object of the chart that refers to its Services by these ports, which a Service of type ExternalName does not map."""
    if obj["kind"] == "APIService":
        return {**obj, "spec": {**obj["spec"], "service": {**obj["spec"]["service"], "port": api_port}}}
    if obj["kind"] == "ValidatingWebhookConfiguration":
        return {**obj, "webhooks": [{**each, "clientConfig": _of_port(each["clientConfig"], webhook_port)} for each in obj["webhooks"]]}
    return obj


def _of_port(client: dict[str, Any], port: int) -> dict[str, Any]:
    return {**client, "service": {**client["service"], "port": port}}


def template(kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = _workload(kind, name)["spec"]["template"]
    return found


def arguments(name: str) -> Iterator[str]:
    """Yield the arguments of a Deployment's only container, except ``--etcd-…``. The caller's later ones replace them."""
    (container,) = template("Deployment", name)["spec"]["containers"]
    return (each for each in container["args"] if not each.startswith("--etcd-"))


def _workload(kind: str, name: str) -> dict[str, Any]:
    return next(each for each in chart.objects() if (each["kind"], each["metadata"]["name"]) == (kind, name))
