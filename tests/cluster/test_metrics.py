"""Metrics on the real cluster: over TLS, for a service account that may read them, and for nobody else."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial

import pytest

from tests.cluster.kube import Kubectl, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SHOWN = {"virt-controller": "kubevirt_reconcile_total", "virt-handler": "kubevirt_launcher_links", "virt-api": "apiserver_request_total"}


@pytest.fixture(scope="module")
def reader(kubectl: Kubectl) -> Iterator[str]:
    """The token of a service account that is bound to the chart's role for Prometheus."""
    binding = f"{kubectl.namespace}-metrics"
    kubectl("create", "serviceaccount", "prometheus")
    kubectl(
        "create",
        "clusterrolebinding",
        binding,
        "--clusterrole=kubevirt.io:metrics-reader",
        f"--serviceaccount={kubectl.namespace}:prometheus",
    )
    yield kubectl("create", "token", "prometheus").strip()
    kubectl("delete", "clusterrolebinding", binding)


def ask(address: str, token: str, scheme: str = "https", port: int = 8443) -> tuple[int, str]:
    """Return code and text of ``/metrics`` of a pod; 0 where nothing answers."""
    # Whom we ask is not the matter here: a scrape by a pod's address has no name to check.
    context = ssl._create_unverified_context()
    request = urllib.request.Request(f"{scheme}://{address}:{port}/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def answers(address: str, token: str) -> bool:
    return ask(address, token)[0] == 200


@pytest.mark.parametrize("component", SHOWN)
def test_metrics_are_told_to_who_may_read_them_alone(system: Kubectl, kubectl: Kubectl, reader: str, component: str) -> None:
    stranger = kubectl("create", "token", "default").strip()
    pods = system.json("get", "pods", "-l", f"kubevirt.io={component}")["items"]
    assert pods
    for address in (str(each["status"]["podIP"]) for each in pods):
        eventually(partial(answers, address, reader), timeout=90, what=f"metrics of {component} at {address}")
        assert SHOWN[component] in ask(address, reader)[1]
        assert ask(address, stranger)[0] == 403
        assert ask(address, "worthless")[0] == 401
        assert ask(address, "")[0] in {401, 403}
        if component != "virt-api":
            assert ask(address, reader, "http", 8080)[0] == 404


def test_etcd_tells_nothing_without_a_certificate(system: Kubectl) -> None:
    (pod,) = system.json("get", "pods", "-l", "kubevirt.io=etcd")["items"]

    assert ask(pod["status"]["podIP"], "", "http", 2381)[0] == 0
    assert ask(pod["status"]["podIP"], "", "https", 2379)[0] == 0
