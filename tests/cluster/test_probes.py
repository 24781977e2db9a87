from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.api import condition_of, has, in_phase, is_true
from tests.cluster.drains import on
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import linux_vm, migration, tiny_vm
from tests.cluster.serving import PORT, a_service, address_of, serve
from tests.cluster.test_services import addresses_of, leads_to, says

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PERIOD_SECONDS = 2
NOBODY_IN = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "nobody-in"}}
NOBODY_IN |= {"spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []}}


def a_machine(name: str, **spec: Any) -> dict[str, Any]:
    vm = linux_vm(name, **spec)
    vm["metadata"]["labels"] = {"app": name}
    return vm


def readiness(kubectl: Kubectl, name: str, status: str, reason: str) -> dict[str, Any]:
    found = kubectl.api.until("vm", name, has("Ready", status=status, reason=reason), timeout=90, what=f"Ready of {name} is {reason}")
    return condition_of(found, "Ready")


def test_a_service_knows_a_guest_while_its_probe_succeeds(kubectl: Kubectl) -> None:
    """A policy excludes all pods, but the node reaches the guest."""
    probe = {"httpGet": {"port": PORT, "path": "/index.html"}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 2}
    kubectl.api.apply(NOBODY_IN, a_service("probed", "probed"), a_machine("probed", readinessProbe=probe))
    kubectl.api.until("vm", "probed", in_phase("Running"), timeout=150, what="vm probed is Running")
    readiness(kubectl, "probed", "False", "ReadinessProbeFailed")
    pod = kubectl.api.get("vm", "probed")["status"]["podName"]
    assert addresses_of(kubectl, "probed") == set()
    with console(kubectl, "probed") as guest:
        guest.expect("GUEST-READY", timeout=150)
        serve(guest, "from-the-guest")
        readiness(kubectl, "probed", "True", "GuestRunning")
        address = address_of(kubectl, pod)
        leads_to(kubectl, "probed", {address})

        guest.run("mv /www/index.html /www/away")
        told = readiness(kubectl, "probed", "False", "ReadinessProbeFailed")
        assert told["message"] == f"the readiness probe fails: GET /index.html at port {PORT}: HTTP status 404"
        says(kubectl, pod, "False", "GuestNotReady")
        leads_to(kubectl, "probed", set())
        guest.run("mv /www/away /www/index.html")
        leads_to(kubectl, "probed", {address})
    assert kubectl.api.get("vm", "probed")["status"]["attempt"] == 1

    made = kubectl.api.create(migration("probed"))["metadata"]["name"]
    kubectl.api.until("migration", made, in_phase("Succeeded"), timeout=300, what=f"migration {made} is Succeeded")
    vm = kubectl.api.get("vm", "probed")
    ready = condition_of(vm, "Ready")
    assert (ready["status"], ready["reason"]) == ("True", "GuestRunning")
    leads_to(kubectl, "probed", {address_of(kubectl, vm["status"]["podName"])})


def failures_pass(kubectl: Kubectl, number: int) -> None:
    """Wait until virt-handler has counted so many failures of VM ``clock``, which it probes as often as ``alive``."""
    probe = {"tcpSocket": {"port": number}, "periodSeconds": PERIOD_SECONDS, "failureThreshold": number}
    kubectl.api.patch("vm", "clock", {"spec": {"readinessProbe": probe}})

    def has_failed(vm: dict[str, Any]) -> bool:
        return f"probe fails: connection to port {number}: " in condition_of(vm, "Ready")["message"]

    kubectl.api.until("vm", "clock", has_failed, timeout=120, what=f"{number} failures in sequence")


def test_a_guest_that_is_not_alive_is_started_again(kubectl: Kubectl) -> None:
    vm = a_machine("alive", runStrategy="Always", terminationGracePeriodSeconds=2)
    vm["spec"]["domain"]["devices"]["interfaces"] = []
    kubectl.api.apply(vm)
    found = kubectl.api.until("vm", "alive", is_true("AgentConnected"), timeout=200, what="vm alive is AgentConnected")
    kubectl.api.create(tiny_vm("clock", nodeSelector=on(found["status"]["nodeName"])))
    kubectl.api.ready("vm", "clock", timeout=120)
    alive = {"guestAgentPing": {}, "periodSeconds": PERIOD_SECONDS, "timeoutSeconds": 5, "failureThreshold": 3}
    kubectl.api.patch("vm", "alive", {"spec": {"livenessProbe": alive}})
    failures_pass(kubectl, 5)
    kubectl.api.verb("alive", "pause")
    kubectl.api.until("vm", "alive", is_true("Paused"), timeout=60, what="vm alive is Paused")
    failures_pass(kubectl, 7)  # twice as many as would end an attempt
    kubectl.api.verb("alive", "unpause")
    kubectl.api.ready("vm", "alive", timeout=120)
    assert kubectl.api.get("vm", "alive")["status"]["attempts"][0].get("result") is None

    with console(kubectl, "alive") as guest:
        guest.type("\n")
        guest.run("kill $(cat /run/qemu-ga.pid)")
    over = kubectl.api.until("vm", "alive", lambda vm: vm["status"]["attempts"][0]["result"], timeout=120, what="the end of the attempt")
    attempt = over["status"]["attempts"][0]
    assert attempt["result"] == "Failed"
    assert attempt["message"].startswith("the liveness probe failed: guest agent: ")
    kubectl.api.until("vm", "alive", lambda found: found["status"]["attempt"] == 2, timeout=120, what="another attempt")
    kubectl.api.until("vm", "alive", in_phase("Running"), timeout=200, what="vm alive is Running")
    reasons = {each["reason"] for each in kubectl.api.list("events") if each["involvedObject"]["name"] == "alive"}
    assert {"LivenessProbeFailed", "ShuttingDown"} <= reasons
