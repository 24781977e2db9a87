from __future__ import annotations

import json
import urllib.request
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition
from apiserver.apis.virt.places import names
from tests.cluster.api import has
from tests.cluster.kube import Kubectl, console, eventually, forwarded, until_in
from tests.cluster.manifests import linux_vm, migration
from tests.cluster.policies import a_policy
from tests.cluster.serving import BOTH, PORT, a_client, a_service, address_of, host, pod_addresses, serve, service_addresses
from tests.cluster.test_testbed import a_pod
from tests.testbed import kubectl as testbed_kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SETTLED_SECONDS = 30
"""For kubelets, kube-proxies and the slowest connection."""
WORD = "from-the-guest"
ANOTHER = "another answer"
NOBODY = ("refused", "no route to host", "unreachable")
ASK = (
    'while true; do if said=$(fetch "http://$ADDRESS/" 2>&1); '
    f'then if [ "$said" = {WORD} ]; then echo ok; else echo "{ANOTHER}: $said"; fi; else echo "failed: $said"; fi; sleep 0.1; done'
)


def a_machine(name: str) -> dict[str, Any]:
    vm = linux_vm(name)
    vm["metadata"]["labels"] = {"app": name}
    return vm


def is_ready(pod: dict[str, Any]) -> bool:
    return (condition(pod["status"].get("conditions"), "Ready") or {}).get("status") == "True"


def addresses_of(kubectl: Kubectl, service: str) -> set[str]:
    return addresses_in_slices(kubectl.api.list("endpointslices", label_selector=f"kubernetes.io/service-name={service}"))


def leads_to(kubectl: Kubectl, service: str, addresses: set[str]) -> None:
    kubectl.api.until_list(
        "endpointslices",
        lambda slices: addresses_in_slices(slices) == addresses,
        label_selector=f"kubernetes.io/service-name={service}",
        timeout=90,
        what=f"Service {service} leads to {addresses or 'no address'}",
    )


def addresses_in_slices(slices: list[dict[str, Any]]) -> set[str]:
    found = [each for one in slices for each in one.get("endpoints") or () if each["conditions"].get("ready")]
    return {address for each in found for address in each["addresses"]}


def said(kubectl: Kubectl, pod: str) -> tuple[str, str]:
    return said_in(kubectl.api.get("pod", pod))


def says(kubectl: Kubectl, pod: str, status: str, reason: str) -> None:
    kubectl.api.until(
        "pod", pod, has(names.GUEST_RUNNING_GATE, status=status, reason=reason), timeout=90, what=f"the gate of {pod} is {reason}"
    )


def said_in(pod: dict[str, Any]) -> tuple[str, str]:
    found = condition(pod["status"].get("conditions"), names.GUEST_RUNNING_GATE) or {}
    return found.get("status", ""), found.get("reason", "")


@pytest.mark.sample(2, "services of guests")
def test_a_service_leads_to_a_guest_while_it_runs(kubectl: Kubectl) -> None:
    kubectl.api.apply(a_service("served", "served", **BOTH), a_client("asks"), a_machine("served"))

    def is_ready_at_last(pods: list[dict[str, Any]]) -> bool:
        if not any(is_ready(each) for each in pods):
            return False
        vm = kubectl.api.get("vm", "served")
        assert vm["status"]["phase"] == "Running"
        return True

    kubectl.api.until_list(
        "pods", is_ready_at_last, label_selector="vm.kubevirt.io/name=served", timeout=120, what="a pod that is ready, with a running guest"
    )
    vm = kubectl.api.get("vm", "served")
    pod = vm["status"]["podName"]
    says(kubectl, pod, "True", "GuestRunning")
    addresses = pod_addresses(kubectl, pod)
    leads_to(kubectl, "served", set(addresses))
    with console(kubectl, "served") as guest:
        guest.expect("GUEST-READY", timeout=90)
        serve(guest, WORD)
    address_of(kubectl, "asks")
    for place in ("served", *(host(each) for each in service_addresses(kubectl, "served"))):
        answers(kubectl, place)
    with forwarded(kubectl, f"pod/{pod}", PORT) as port, urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
        assert b"from-the-guest" in answer.read()
    if testbed_kubectl.is_own_cluster():
        assert [probed(vm["status"]["nodeName"], each) for each in addresses] == ["from-the-guest"] * 2

    kubectl.api.verb("served", "pause")
    says(kubectl, pod, "False", "GuestPaused")
    leads_to(kubectl, "served", set())
    kubectl.api.verb("served", "unpause")
    leads_to(kubectl, "served", set(addresses))
    answers(kubectl, "served")


def answers(kubectl: Kubectl, place: str) -> None:
    until_in(kubectl, "asks", f'fetch "http://{place}/" | grep -q {WORD}', timeout=60, what=f"an answer by the Service, {place}")


def probed(node: str, address: str) -> str:
    from tests.testbed import progress

    return progress.output_of(["ip", "netns", "exec", node, "busybox", "wget", "-q", "-O", "-", f"http://{host(address)}:{PORT}/"]).strip()


def looks_until_the_switch(kubectl: Kubectl, migration: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    target = kubectl.api.until("migration", migration, lambda each: each["status"]["targetPod"], timeout=120, what="the target's pod")[
        "status"
    ]["targetPod"]

    def is_over() -> bool:
        pod = kubectl.api.get("pod", target)
        status = kubectl.api.get("migration", migration)["status"]
        if kubectl.api.get("vm", "moving")["status"]["podName"] != target:
            found.append((status["phase"], said_in(pod)[0]))
        assert status["phase"] not in ("Failed", "Cancelled"), status
        return bool(status["phase"] == "Succeeded")

    eventually(is_over, timeout=300, what="the end of the migration", interval=0.1)
    return found


@pytest.mark.sample(2, "services of guests")
def test_no_connection_goes_to_the_pod_that_waits_for_the_guest(kubectl: Kubectl) -> None:
    """Only attempts during the switch-over may fail; the test prints their counts."""
    kubectl.api.apply(a_service("moving", "moving"), a_machine("moving"))
    kubectl.api.ready("vm", "moving", timeout=120)
    with console(kubectl, "moving") as guest:
        guest.expect("GUEST-READY", timeout=90)
        serve(guest, WORD)
    client = a_pod("loops", "sh", "-c", ASK, restart="Always")
    service = kubectl.api.get("service", "moving")["spec"]["clusterIP"]
    client["spec"]["containers"][0]["env"] = [{"name": "ADDRESS", "value": service}]
    kubectl.api.create(client)
    address_of(kubectl, "loops")
    eventually(lambda: kubectl.api.log("loops").splitlines()[-10:] == ["ok"] * 10, timeout=90, what="ten answers")
    begun = now(kubectl)

    with a_policy(kubectl, "long-enough-to-be-looked-at", machines={"app": "moving"}, bandwidth="8Mi"):
        made = kubectl.api.create(migration("moving"))["metadata"]["name"]
        looks = looks_until_the_switch(kubectl, made)
    moved = kubectl.api.get("migration", made)["status"]
    at = {each["phase"]: datetime.fromisoformat(each["time"]) for each in moved["phaseTransitionTimestamps"]}
    eventually(
        lambda: sum(time > at["Succeeded"] and word == "ok" for time, word in attempts(kubectl)) >= 20,
        timeout=120,
        what="20 answers after it",
    )
    eventually(lambda: (now(kubectl) - at["Succeeded"]).total_seconds() > SETTLED_SECONDS + 3, timeout=120, what="the end of it")

    seen = [(time, word) for time, word in attempts(kubectl) if time > begun]
    failed = [(time, word) for time, word in seen if word != "ok"]
    before = [word for time, word in seen if time < at["Running"]]
    told = {
        "attempts": len(seen),
        "failed": len(failed),
        "kinds": dict(Counter(word.rpartition(": ")[2] for _, word in failed)),
        "seconds from the begin of the move to its end": (at["Succeeded"] - at["Running"]).total_seconds(),
        "seconds from the end of the move to the last failure": max(
            ((time - at["Succeeded"]).total_seconds() for time, _ in failed), default=0.0
        ),
    }
    print(json.dumps(told))
    assert {gate for _, gate in looks} <= {"", "False"}, looks
    assert [phase for phase, _ in looks].count("Running") >= 3, looks
    assert len(before) >= 3
    assert [word for word in before if word != "ok"] == [], told
    assert [word for _, word in failed if word.startswith(ANOTHER) or any(each in word.lower() for each in NOBODY)] == [], told
    assert [word for time, word in failed if (time - at["Succeeded"]).total_seconds() > SETTLED_SECONDS] == [], told
    left = kubectl.api.find("pod", moved["sourcePod"])
    assert left is None or said_in(left) == ("False", "GuestElsewhere")
    assert said(kubectl, moved["targetPod"]) == ("True", "GuestRunning")
    known = kubectl.api.get("pod", moved["targetPod"])["status"]["conditions"]
    for kind in (names.GUEST_RUNNING_GATE, "Ready"):
        since = datetime.fromisoformat((condition(known, kind) or {})["lastTransitionTime"])
        assert since >= at["Running"].replace(microsecond=0)


def attempts(kubectl: Kubectl) -> list[tuple[datetime, str]]:
    lines = (line.partition(" ") for line in kubectl.api.log("loops", timestamps=True).splitlines())
    return [(datetime.fromisoformat(time), word) for time, _, word in lines if word == "ok" or word.startswith(("failed", ANOTHER))]


def now(kubectl: Kubectl) -> datetime:
    return attempts(kubectl)[-1][0]
