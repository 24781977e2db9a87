from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.apis.meta.objects import dig
from tests.cluster import metrics_server, serving_pods
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import tiny_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(660)]

SERVICE = "v1beta1.metrics.k8s.io"
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
    kubectl.api.delete("apiservices", SERVICE)  # an API without a server blocks the deletion of namespaces


def a_set(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": tiny_vm("")["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachineReplicaSet", "metadata": {"name": "web"}, "spec": spec}


def test_an_autoscaler_scales_a_set_by_the_use_of_its_pods(kubectl: Kubectl, metrics_api: None, testguest: None) -> None:
    kubectl.api.create(a_set(2))
    autoscaler = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    autoscaler["spec"] |= {"minReplicas": 2, "maxReplicas": 3}  # 0.9 processors of each are more than the example's 0.7
    kubectl.api.until(SETS, "web", lambda each: dig(each, "status", "readyReplicas") == 2, timeout=120, what="two guests")
    kubectl.api.create(autoscaler)
    kubectl.api.until(SETS, "web", lambda each: dig(each, "spec", "replicas") == 3, timeout=120, what="a third replica")
    current = dig(kubectl.api.get("horizontalpodautoscalers", "web"), "status", "currentMetrics")
    assert dig(current[0], "resource", "current", "averageValue") == "900m"
    kubectl.api.until(SETS, "web", lambda each: dig(each, "status", "readyReplicas") == 3, timeout=120, what="three guests")
    rows = [each.split() for each in kubectl("virt", "top", "-l", "app=web", "--no-headers").splitlines()]
    assert [row[1:] for row in rows] == [["900m", "64Mi"]] * 3
    kubectl.api.delete("horizontalpodautoscalers", "web")
    kubectl.api.delete_all(SETS, timeout=120)
