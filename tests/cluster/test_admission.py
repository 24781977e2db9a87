"""Admission webhooks of the cluster with our API: kube-apiserver calls none for aggregated requests, so virt-api must."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta import errors
from certs.issuing import Pair, Profile, issue, new_authority
from tests.cluster import webhook_server
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.manifests import tiny_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

IMAGE = "localhost/kubevirt/virt-api:dev"
Register = Callable[[str, str], None]


@pytest.fixture(scope="module")
def authority(kubectl: Kubectl) -> Pair:
    now, day = datetime.now(UTC), timedelta(days=1)
    made = new_authority("webhook", day, now)
    pair = issue(made, Profile("hook", dns_names=(f"hook.{kubectl.namespace}.svc",), server=True), day, now)
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "hook",
        "image": IMAGE,
        "command": ["python3", "/srv/server.py"],
        "ports": [{"name": "https", "containerPort": webhook_server.PORT}],
        "readinessProbe": {"tcpSocket": {"port": "https"}, "periodSeconds": 1},
        "volumeMounts": [{"name": "tls", "mountPath": "/tls"}, {"name": "source", "mountPath": "/srv"}],
        "securityContext": restricted,
    }
    pod_security = {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    volumes = [{"name": "tls", "secret": {"secretName": "hook"}}, {"name": "source", "configMap": {"name": "hook"}}]
    encoded = {"tls.crt": pair.certificate, "tls.key": pair.key}
    kubectl.api.apply(
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook"}, "type": "kubernetes.io/tls",
            "data": {key: base64.b64encode(value).decode() for key, value in encoded.items()},
        },
        {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hook"},
            "data": {"server.py": Path(webhook_server.__file__).read_text()},
        },
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
            "spec": {"selector": {"app": "hook"}, "ports": [{"port": 443, "targetPort": "https"}]},
        },
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hook", "labels": {"app": "hook"}},
            "spec": {"containers": [container], "volumes": volumes, "securityContext": pod_security},
        },
    )  # fmt: skip
    kubectl.api.ready("pod", "hook", timeout=120)
    return made


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
    """ADM-01, ADM-03, ADM-06: creation, dry run and deletion; the user reads the reason; deleting the configuration ends it."""
    kubectl.api.apply(tiny_vm("before", runStrategy="Halted"))
    register("Validating", "/deny")
    dry = ("--dry-run=server",)
    eventually(
        lambda: "need an owner" in _refusal(kubectl, tiny_vm("later", runStrategy="Halted"), *dry), timeout=90, what="the webhook counts"
    )
    refusal = _refusal(kubectl, tiny_vm("later", runStrategy="Halted"))
    assert 'admission webhook "validating.example.test" denied the request: CREATE: machines need an owner' in refusal
    assert refusal.startswith("Error from server: ")  # no reason in brackets: the webhook gave none, as with Go
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

    def labelled() -> bool:
        if kubectl.api.find("vm", "given"):
            kubectl.api.delete("vm", "given", timeout=30)
        done = kubectl.try_run("apply", "-f", "-", stdin=json.dumps(tiny_vm("given", runStrategy="Halted")))
        return "Warning: machines should have an owner" in done.stderr

    eventually(labelled, timeout=90, what="the webhook counts", interval=1)
    assert kubectl.api.get("vm", "given")["metadata"]["labels"] == {"owner": "somebody"}


def is_deleted(kubectl: Kubectl, name: str) -> bool:
    try:
        kubectl.api.delete("vm", name)
    except errors.StatusError:
        return False
    return True


def _refusal(kubectl: Kubectl, manifest: dict[str, Any], *flags: str) -> str:
    return kubectl.try_run("create", "-f", "-", *flags, stdin=json.dumps(manifest)).stderr
