from __future__ import annotations

import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cluster.api import in_phase
from tests.cluster.kube import Kubectl, eventually, forwarded
from tests.cluster.manifests import tiny_vm, with_disks
from tests.testbed import kubectl as testbed_kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SHOWN = {
    "virt-controller": "controller_runtime_reconcile_total",
    "virt-handler": "kubevirt_launcher_links",
    "virt-api": "apiserver_request_total",
}


@pytest.fixture(scope="module")
def reader(kubectl: Kubectl) -> Iterator[str]:
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
    yield kubectl.api.token("prometheus")
    kubectl.api.delete("clusterrolebindings", binding)


def ask(system: Kubectl, pod: str, token: str, scheme: str = "https", port: int = 8443) -> tuple[int, str]:
    with forwarded(system, f"pod/{pod}", port) as here:
        return ask_at(here, token, scheme)


def ask_at(port: int, token: str, scheme: str = "https") -> tuple[int, str]:
    # A scrape by a pod's address has no name to verify.
    context = ssl._create_unverified_context()
    request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


@contextmanager
def answering(system: Kubectl, pod: str, token: str) -> Iterator[int]:
    # A refused connection would end the forwarding.
    eventually(lambda: ask(system, pod, token)[0] == 200, timeout=90, what=f"metrics of {pod}")
    with forwarded(system, f"pod/{pod}", 8443) as here:
        yield here


@pytest.mark.parametrize("component", SHOWN)
def test_metrics_are_told_to_who_may_read_them_alone(system: Kubectl, kubectl: Kubectl, reader: str, component: str) -> None:
    untrusted = kubectl.api.token("default")
    found = system.api.list("pods", label_selector=f"kubevirt.io={component}")
    pods = [each for each in found if "deletionTimestamp" not in each["metadata"]]
    assert pods
    for pod in (str(each["metadata"]["name"]) for each in pods):
        with answering(system, pod, reader) as here:
            assert SHOWN[component] in ask_at(here, reader)[1]
            assert ask_at(here, untrusted)[0] == 403
            assert ask_at(here, "worthless")[0] == 401
            assert ask_at(here, "")[0] in {401, 403}
        if component != "virt-api":
            assert ask(system, pod, reader, "http", 8080)[0] == 404


def values(page: str, name: str, machine: str) -> dict[str, float]:
    found = (each.rsplit(" ", 1) for each in page.splitlines() if each.startswith(f"{name}{{") and f'name="{machine}"' in each)
    return {labels: float(value) for labels, value in found}


def test_metrics_of_a_machine_follow_its_guest(system: Kubectl, kubectl: Kubectl, reader: str, testguest: None) -> None:
    vm = with_disks(tiny_vm("measured", run="counter"), {"name": "scratch", "type": "EmptyDisk", "source": {"size": "16Mi"}})
    kubectl.api.apply(vm)
    kubectl.api.until("vm", "measured", in_phase("Running"), timeout=180, what="a running guest")
    node = kubectl.api.get("vm", "measured")["status"]["nodeName"]
    handlers = system.api.list("pods", label_selector="kubevirt.io=virt-handler")
    handler = next(str(each["metadata"]["name"]) for each in handlers if each["spec"].get("nodeName") == node)

    def cpu_seconds(port: int) -> float:
        return sum(values(ask_at(port, reader)[1], "kubevirt_vmi_cpu_usage_seconds_total", "measured").values())

    with answering(system, handler, reader) as here:
        eventually(lambda: cpu_seconds(here) > 0, timeout=90, what="statistics of the guest")
        before = cpu_seconds(here)
        eventually(lambda: cpu_seconds(here) > before, timeout=60, what="more processor time of a guest that counts")
        page = ask_at(here, reader)[1]
    (resident,) = values(page, "kubevirt_vmi_memory_resident_bytes", "measured").values()
    assert 8 << 20 < resident < 512 << 20
    (drive,) = values(page, "kubevirt_vmi_storage_iops_read_total", "measured")
    assert 'drive="scratch"' in drive
    controllers = [str(each["metadata"]["name"]) for each in system.api.list("pods", label_selector="kubevirt.io=virt-controller")]
    infos = [each for pod in controllers for each in values(ask(system, pod, reader)[1], "kubevirt_vmi_info", "measured")]
    assert [f'node="{node}"' in each and 'phase="running"' in each for each in infos] == [True], "only the leader reports it"
    kubectl.api.delete("vm", "measured")


def test_etcd_tells_nothing_without_a_certificate(system: Kubectl) -> None:
    (pod,) = system.api.list("pods", label_selector="kubevirt.io=etcd")

    name = str(pod["metadata"]["name"])
    assert ask(system, name, "", "https", 2379)[0] == 0
    if testbed_kubectl.is_own_cluster():  # past the policies: a node reaches its pods
        found = [subprocess.run(_connect(pod, port), check=False, capture_output=True).returncode for port in (2379, 2381)]
        assert found == [0, 1]


def _connect(pod: dict[str, Any], port: int) -> list[str]:
    program = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)"
    return ["ip", "netns", "exec", pod["spec"]["nodeName"], sys.executable, "-c", program, pod["status"]["podIP"], str(port)]
