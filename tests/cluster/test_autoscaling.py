from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.apis.meta.objects import dig, name_of
from tests.cluster import metrics_server, serving_pods
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import tiny_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(660)]

SERVICE = "v1beta1.metrics.k8s.io"
LIMIT = "50m"
SETS = "virtualmachinereplicasets"
EXAMPLE = Path(__file__).parents[2] / "examples" / "replica-set-autoscaler.yaml"


@pytest.fixture
def metrics_api(kubectl: Kubectl) -> Iterator[None]:
    if kubectl.api.find("apiservices", SERVICE):
        pytest.skip("this cluster has a metrics API of its own")
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": kubectl.namespace}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "metrics"}}
    kubectl.api.create({**binding, "roleRef": role, "subjects": [subject]})
    reader = f"{kubectl.namespace}-kubelets"
    cluster = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": reader}}
    kubelets = {**role, "name": "system:kubelet-api-admin"}
    kubectl.api.create({**cluster, "roleRef": kubelets, "subjects": [subject]})
    authority = serving_pods.serve(kubectl, "metrics", metrics_server)
    spec = {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "service": {"name": "metrics", "namespace": kubectl.namespace},
        "caBundle": base64.b64encode(authority.certificate).decode(),
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    kubectl.api.create({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": SERVICE}, "spec": spec})
    yield
    kubectl.api.delete("clusterrolebindings", reader)
    kubectl.api.delete("apiservices", SERVICE)  # an API without a server blocks the deletion of namespaces


def a_set(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": tiny_vm("")["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachineReplicaSet", "metadata": {"name": "web"}, "spec": spec}


def milli(amount: str) -> int:
    return int(amount.removesuffix("m"))


def test_an_autoscaler_scales_a_set_by_the_use_of_its_pods(kubectl: Kubectl, metrics_api: None, testguest: None) -> None:
    kubectl.api.create(a_set(2))
    autoscaler = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    autoscaler["spec"] |= {"minReplicas": 2, "maxReplicas": 3}
    autoscaler["spec"]["metrics"][0]["resource"]["target"]["averageValue"] = LIMIT  # a busy machine gives a guest less than the example's
    kubectl.api.until(SETS, "web", lambda each: dig(each, "status", "readyReplicas") == 2, timeout=120, what="two guests")
    kubectl.api.create(autoscaler)
    idle = kubectl.api.until("horizontalpodautoscalers", "web", average, timeout=120, what="the use of idle guests")
    assert milli(average(idle)) <= milli(LIMIT)
    assert dig(kubectl.api.get(SETS, "web"), "spec", "replicas") == 2

    first = name_of(kubectl.api.list("vms", label_selector="app=web")[0])
    with console(kubectl, first) as guest:
        guest.expect("GUEST-READY", timeout=60)
        guest.type("spin\necho busy\n")
        guest.expect("busy", timeout=60)
    kubectl.api.until(SETS, "web", lambda each: dig(each, "spec", "replicas") == 3, timeout=180, what="a third replica")
    kubectl.api.until(SETS, "web", lambda each: dig(each, "status", "readyReplicas") == 3, timeout=120, what="three guests")

    def rows() -> list[list[str]]:
        return [each.split() for each in kubectl("virt", "top", "-l", "app=web", "--no-headers", "--sort-by", "cpu").splitlines()]

    def is_busiest(name: str) -> bool:
        busiest, second, *others = rows()
        return busiest[0] == name and milli(busiest[1]) > milli(LIMIT) > milli(second[1]) and len(others) == 1

    # The third guest uses more while it boots.
    eventually(lambda: is_busiest(first), timeout=60, what="one busy guest of three")
    kubectl.api.delete("horizontalpodautoscalers", "web")
    kubectl.api.delete_all(SETS, timeout=120)


def average(autoscaler: dict[str, Any]) -> str:
    found = dig(autoscaler, "status", "currentMetrics") or [{}]
    return str(dig(found[0], "resource", "current", "averageValue") or "")
