"""Metrics over TLS, only for authorized service accounts."""

from __future__ import annotations

import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.cluster.kube import Kubectl, eventually, forwarded
from tests.testbed import kubectl as testbed_kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SHOWN = {
    "virt-controller": "controller_runtime_reconcile_total",
    "virt-handler": "kubevirt_launcher_links",
    "virt-api": "apiserver_request_total",
}


@pytest.fixture(scope="module")
def reader(kubectl: Kubectl) -> Iterator[str]:
    """The token of an account with the chart's role for Prometheus."""
    binding = f"{kubectl.namespace}-metrics"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubevirt.io:metrics-reader"}
    subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": kubectl.namespace}
    kubectl.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus"}})
    kubectl.api.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": binding},
            "roleRef": role,
            "subjects": [subject],
        }
    )
    yield kubectl("create", "token", "prometheus").strip()
    kubectl.api.delete("clusterrolebindings", binding)


def ask(system: Kubectl, pod: str, token: str, scheme: str = "https", port: int = 8443) -> tuple[int, str]:
    """Return code and text of a pod's ``/metrics``, by another pod, because policies exclude this machine."""
    with forwarded(system, f"pod/{pod}", port) as here:
        return _ask(f"127.0.0.1:{here}", token, scheme)


def _ask(address: str, token: str, scheme: str) -> tuple[int, str]:
    # The server's identity does not matter here: a scrape by a pod's address has no name to verify.
    context = ssl._create_unverified_context()
    request = urllib.request.Request(f"{scheme}://{address}/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def answers(system: Kubectl, pod: str, token: str) -> bool:
    return ask(system, pod, token)[0] == 200


@pytest.mark.parametrize("component", SHOWN)
def test_metrics_are_told_to_who_may_read_them_alone(system: Kubectl, kubectl: Kubectl, reader: str, component: str) -> None:
    stranger = kubectl("create", "token", "default").strip()
    found = system.api.list("pods", label_selector=f"kubevirt.io={component}")
    pods = [each for each in found if "deletionTimestamp" not in each["metadata"]]  # an earlier upgrade may have replaced some
    assert pods
    for pod in (str(each["metadata"]["name"]) for each in pods):
        eventually(partial(answers, system, pod, reader), timeout=90, what=f"metrics of {component} in {pod}")
        assert SHOWN[component] in ask(system, pod, reader)[1]
        assert ask(system, pod, stranger)[0] == 403
        assert ask(system, pod, "worthless")[0] == 401
        assert ask(system, pod, "")[0] in {401, 403}
        if component != "virt-api":
            assert ask(system, pod, reader, "http", 8080)[0] == 404


def test_etcd_tells_nothing_without_a_certificate(system: Kubectl) -> None:
    (pod,) = system.api.list("pods", label_selector="kubevirt.io=etcd")

    name = str(pod["metadata"]["name"])
    assert ask(system, name, "", "https", 2379)[0] == 0
    if testbed_kubectl.is_own_cluster():  # by the pod's address, past the policies: a node reaches its pods
        found = [subprocess.run(_connect(pod, port), check=False, capture_output=True).returncode for port in (2379, 2381)]
        assert found == [0, 1]


def _connect(pod: dict[str, Any], port: int) -> list[str]:
    program = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)"
    return ["ip", "netns", "exec", pod["spec"]["nodeName"], sys.executable, "-c", program, pod["status"]["podIP"], str(port)]
