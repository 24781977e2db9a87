"""Probes of real guests: what a Service makes of their answers, and what becomes of a guest that does not give any."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import linux_vm, migration
from tests.cluster.serving import PORT, a_service, address_of, serve
from tests.cluster.test_services import addresses_of, said

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PERIOD_SECONDS = 2
NOBODY_IN = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "nobody-in"}}
NOBODY_IN |= {"spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []}}


def a_machine(name: str, **spec: Any) -> dict[str, Any]:
    vm = linux_vm(name, **spec)
    vm["metadata"]["labels"] = {"app": name}
    return vm


def ready(kubectl: Kubectl, name: str) -> tuple[str, str]:
    found = condition(kubectl.json("get", "vm", name).get("status", {}).get("conditions"), "Ready") or {}
    return found.get("status", ""), found.get("reason", "")


def test_a_service_knows_a_guest_while_its_probe_succeeds(kubectl: Kubectl) -> None:
    """Nobody else may reach the guest: its node still does, as it does with every pod."""
    probe = {"httpGet": {"port": PORT, "path": "/index.html"}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 2}
    kubectl.apply(NOBODY_IN, a_service("probed", "probed"), a_machine("probed", readinessProbe=probe))
    kubectl("wait", "vm", "probed", "--for=jsonpath={.status.phase}=Running", "--timeout=150s", timeout=160)
    eventually(lambda: ready(kubectl, "probed") == ("False", "ReadinessProbeFailed"), timeout=90, what="a guest that is not ready")
    pod = kubectl.json("get", "vm", "probed")["status"]["podName"]
    assert addresses_of(kubectl, "probed") == set()
    with console(kubectl, "probed") as guest:
        guest.expect("GUEST-READY", timeout=150)
        serve(guest, "from-the-guest")
        eventually(lambda: ready(kubectl, "probed") == ("True", "GuestRunning"), timeout=60, what="a guest that is ready")
        address = address_of(kubectl, pod)
        eventually(lambda: addresses_of(kubectl, "probed") == {address}, timeout=90, what="the Service's address")

        guest.run("mv /www/index.html /www/away")
        eventually(
            lambda: ready(kubectl, "probed") == ("False", "ReadinessProbeFailed"), timeout=60, what="a guest that is not ready again"
        )
        told = condition(kubectl.json("get", "vm", "probed")["status"]["conditions"], "Ready") or {}
        assert told["message"] == f"the readiness probe fails: GET /index.html at port {PORT}: HTTP status 404"
        eventually(lambda: said(kubectl, pod) == ("False", "GuestNotReady"), timeout=90, what="the pod's condition")
        eventually(lambda: addresses_of(kubectl, "probed") == set(), timeout=90, what="a Service without the guest")
        guest.run("mv /www/away /www/index.html")
        eventually(lambda: addresses_of(kubectl, "probed") == {address}, timeout=60, what="the Service's address again")
    assert kubectl.json("get", "vm", "probed")["status"]["attempt"] == 1

    made = kubectl.create(migration("probed"))["metadata"]["name"]
    kubectl("wait", "migration", made, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=300s", timeout=310)
    assert ready(kubectl, "probed") == ("True", "GuestRunning")  # as it was where it came from
    moved = kubectl.json("get", "vm", "probed")["status"]["podName"]
    eventually(lambda: addresses_of(kubectl, "probed") == {address_of(kubectl, moved)}, timeout=60, what="the address of the other pod")


def test_a_guest_that_is_not_alive_is_started_again(kubectl: Kubectl) -> None:
    """One that is paused is not taken for dead; a probe may be set while the guest runs; and its agent answers without a network."""
    vm = a_machine("alive", runStrategy="Always", terminationGracePeriodSeconds=2)
    vm["spec"]["domain"]["devices"]["interfaces"] = []
    kubectl.apply(vm)
    kubectl("wait", "vm", "alive", "--for=condition=AgentConnected", "--timeout=200s", timeout=210)
    alive = {"guestAgentPing": {}, "periodSeconds": PERIOD_SECONDS, "timeoutSeconds": 5, "failureThreshold": 3}
    kubectl("patch", "vm", "alive", "--type=merge", "-p", json.dumps({"spec": {"livenessProbe": alive}}))
    time.sleep(4 * PERIOD_SECONDS)
    kubectl("virt", "pause", "alive")
    kubectl("wait", "vm", "alive", "--for=condition=Paused", "--timeout=60s", timeout=70)
    time.sleep(6 * PERIOD_SECONDS)  # nobody asks, and nothing says so: twice what would end it
    kubectl("virt", "unpause", "alive")
    kubectl("wait", "vm", "alive", "--for=condition=Ready", "--timeout=120s", timeout=130)
    assert first_attempt(kubectl, "alive").get("result") is None

    with console(kubectl, "alive") as guest:
        guest.type("\n")
        guest.run("kill $(cat /run/qemu-ga.pid)")
    eventually(lambda: first_attempt(kubectl, "alive").get("result"), timeout=120, what="the end of the attempt")
    attempt = first_attempt(kubectl, "alive")
    assert attempt["result"] == "Failed"
    assert attempt["message"].startswith("the liveness probe failed: guest agent: ")
    eventually(lambda: kubectl.json("get", "vm", "alive")["status"]["attempt"] == 2, timeout=120, what="another attempt")
    kubectl("wait", "vm", "alive", "--for=jsonpath={.status.phase}=Running", "--timeout=200s", timeout=210)
    reasons = {each["reason"] for each in kubectl.json("get", "events")["items"] if each["involvedObject"]["name"] == "alive"}
    assert {"LivenessProbeFailed", "ShuttingDown"} <= reasons


def first_attempt(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.json("get", "vm", name)["status"]["attempts"][0]
    return found
