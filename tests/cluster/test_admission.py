"""The cluster's admission webhooks with our API: kube-apiserver calls none for aggregated requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from apiserver.apis.meta import errors
from certs.issuing import Pair
from tests.cluster import serving_pods, webhook_server
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.manifests import tiny_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

Register = Callable[[str, str], None]


@pytest.fixture(scope="module")
def authority(kubectl: Kubectl) -> Pair:
    return serving_pods.serve(kubectl, "hook", webhook_server)


@pytest.fixture
def register(kubectl: Kubectl, authority: Pair) -> Iterator[Register]:
    told: list[tuple[str, str]] = []

    def tell(effect: str, path: str) -> None:
        service = {"name": "hook", "namespace": kubectl.namespace, "path": path}
        rule = {
            "operations": ["CREATE", "UPDATE", "DELETE", "CONNECT"], "apiGroups": ["kubevirt.io"], "apiVersions": ["*"],
            "resources": ["virtualmachines", "virtualmachines/console"],
        }  # fmt: skip
        hook: dict[str, Any] = {
            "name": f"{effect.lower()}.example.test",
            "clientConfig": {"service": service, "caBundle": base64.b64encode(authority.certificate).decode()},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": kubectl.namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
        }
        kind, name = f"{effect}WebhookConfiguration", f"{kubectl.namespace}-{effect.lower()}"
        kubectl.api.apply(
            {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": [hook]}
        )  # fmt: skip
        told.append((kind, name))

    yield tell
    for kind, name in told:
        if kubectl.api.find(kind.lower(), name):
            kubectl.api.delete(kind.lower(), name)


def test_a_webhook_of_the_cluster_denies_a_machine(kubectl: Kubectl, register: Register) -> None:
    kubectl.api.apply(tiny_vm("before", runStrategy="Halted"))
    register("Validating", "/deny")
    later = tiny_vm("later", runStrategy="Halted")

    def is_refused() -> bool:
        try:
            kubectl.api.try_create(later)
        except errors.StatusError as error:
            return "need an owner" in str(error)
        return False

    eventually(is_refused, timeout=90, what="the webhook counts")
    refusal = kubectl.try_run("create", "-f", "-", stdin=json.dumps(later)).stderr
    assert 'admission webhook "validating.example.test" denied the request: CREATE: machines need an owner' in refusal
    assert refusal.startswith("Error from server: ")
    done = kubectl.try_run("delete", "vm", "before")
    assert (done.returncode, "DELETE: machines need an owner" in done.stderr) == (1, True)
    owned = tiny_vm("owned", runStrategy="Halted")
    owned["metadata"]["labels"] = {"owner": "me"}
    kubectl.api.create(owned)
    done = kubectl.try_run("virt", "console", "before")
    assert "CONNECT: machines need an owner" in done.stdout + done.stderr
    kubectl.api.delete("validatingwebhookconfigurations", f"{kubectl.namespace}-validating")
    eventually(lambda: is_deleted(kubectl, "before"), timeout=90, what="the webhook is gone")


def test_a_webhook_of_the_cluster_changes_a_machine(kubectl: Kubectl, register: Register) -> None:
    register("Mutating", "/label")

    given = tiny_vm("given", runStrategy="Halted")

    def is_labelled() -> bool:
        try:
            return bool(kubectl.api.try_create(given)["metadata"].get("labels"))
        except errors.StatusError:
            return False

    eventually(is_labelled, timeout=90, what="the webhook counts")
    done = kubectl.try_run("apply", "-f", "-", stdin=json.dumps(given))
    assert "Warning: machines should have an owner" in done.stderr
    assert kubectl.api.get("vm", "given")["metadata"]["labels"] == {"owner": "somebody"}


def is_deleted(kubectl: Kubectl, name: str) -> bool:
    try:
        kubectl.api.delete("vm", name)
    except errors.StatusError:
        return False
    return True
