from __future__ import annotations

import json
import secrets

import pytest

from apiserver.apis.meta.objects import Object, dig
from tests.cluster.api import in_phase
from tests.cluster.drains import ANYWHERE, drain, ended, migrations, on, refused, rehearsed, runs_elsewhere, together, uncordoned
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.manifests import migration, tiny_vm
from tests.cluster.policies import a_policy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def waits(kubectl: Kubectl, node: str, name: str, place: str) -> None:
    expected = f"2 migrations are leaving node {node}; {place} in the queue"

    def is_so(found: list[Object]) -> bool:
        mine = [each for each in found if each["spec"]["selector"]["name"] == name]
        status = max(mine, key=lambda each: str(each["metadata"]["creationTimestamp"])).get("status") or {} if mine else {}
        return (status.get("phase"), status.get("message"), status.get("targetPod")) == ("Pending", expected, None)

    kubectl.api.until_list("migrations", is_so, timeout=60, what=f"{name} is {place} in the queue")


def test_third_guest_waits_and_a_higher_priority_one_overtakes(kubectl: Kubectl, testguest: None) -> None:
    names = ("turn-a", "turn-b", "turn-c", "hurries")
    node = together(kubectl, *(tiny_vm(name, run="fill=64") for name in names))
    *movers, third, hurries = names
    with a_policy(kubectl, "drain-slowly", bandwidth="1Mi", completionTimeoutPerGiB=600):
        begun = [kubectl.api.create(migration(name))["metadata"]["name"] for name in movers]
        for each in begun:
            kubectl.api.until("migrations", each, in_phase("Running"), timeout=120, what=f"{each} runs")
        kubectl.api.create(migration(third))
        waits(kubectl, node, third, "1st")
        hurried = kubectl.api.migrate(hurries, priority=50)
        waits(kubectl, node, hurries, "1st")
        waits(kubectl, node, third, "2nd")

        kubectl("virt", "cancel-migration", begun[0], "--migration", "--wait", "--timeout", "1m", timeout=70)
        kubectl.api.until(
            "migrations", hurried, lambda each: dig(each, "status", "targetPod"), timeout=60, what="the one in a hurry begins"
        )
        waits(kubectl, node, third, "1st")
        kubectl.api.delete_all("migrations", timeout=100)
    assert {kubectl.api.get("vm", name)["status"]["nodeName"] for name in names} == {node}


def test_dry_run_and_external_evictions_move_no_guest(kubectl: Kubectl, testguest: None) -> None:
    kubectl.api.create(tiny_vm("kept"))
    pod = kubectl.api.ready("vm", "kept", timeout=90)["status"]["podName"]
    eventually(lambda: "must move to another node first" in rehearsed(kubectl, pod), timeout=60, what="the eviction is judged")
    assert not migrations(kubectl, "kept")

    changed = [{"op": "replace", "path": "/webhooks/0/clientConfig/service/path", "value": f"/evictions/{secrets.token_hex(24)}"}]
    kubectl.api.patch("validatingwebhookconfigurations", "evictions.kubevirt.io", changed)
    said = [rehearsed(kubectl, pod) for _ in range(12)]
    assert all("must move to another node first" in each or "retry the eviction" in each for each in said), said
    eventually(lambda: "must move to another node first" in rehearsed(kubectl, pod), timeout=90, what="the new secret is known")

    kubectl.api.patch("vm", "kept", {"spec": {"evictionStrategy": "External"}})
    for ask in (rehearsed, refused):
        assert "virtual machine kept has evictionStrategy External, so another program must move it" in ask(kubectl, pod)
    assert not migrations(kubectl, "kept")
    assert kubectl.api.get("vm", "kept")["status"]["podName"] == pod


def test_guest_that_fits_no_other_node_stays(kubectl: Kubectl, testguest: None) -> None:
    chosen = "vm.kubevirt.io/name=pinned"
    kubectl.api.create(tiny_vm("pinned"))
    status = kubectl.api.ready("vm", "pinned", timeout=90)["status"]
    pod = status["podName"]
    kubectl.api.patch("vm", "pinned", {"spec": {"nodeSelector": on(status["nodeName"])}})
    assert "its migration is starting" in refused(kubectl, pod)
    both = kubectl.api.until_list(
        "pods", lambda pods: len(pods) == 2, timeout=60, what="a pod for the guest to go to", label_selector=chosen
    )
    (target,) = (name for each in both if (name := each["metadata"]["name"]) != pod)
    for ask in (rehearsed, refused):
        assert "the guest of virtual machine pinned is migrating to this pod: migration pinned-evacuation-" in ask(kubectl, target)

    (moving,) = migrations(kubectl, "pinned")
    status = ended(kubectl, moving["metadata"]["name"], timeout=150)["status"]
    assert status["phase"] == "Failed"
    assert "no node could run the target pod within 60 s" in status["message"]
    kubectl.api.gone("pod", target, timeout=60)
    assert kubectl.api.get("vm", "pinned")["status"]["podName"] == pod


def test_single_run_guest_continues_after_an_eviction_only(kubectl: Kubectl, testguest: None) -> None:
    names = ("once", "by-hand")
    kubectl.api.create(tiny_vm("once", runStrategy="Once", evictionStrategy="Shutdown"))
    node = kubectl.api.ready("vm", "once", timeout=90)["status"]["nodeName"]
    kubectl.api.create(tiny_vm("by-hand", runStrategy="Manual", evictionStrategy="Shutdown", nodeSelector=on(node)))
    kubectl.api.verb("by-hand", "start")
    kubectl.api.ready("vm", "by-hand", timeout=90)
    kubectl.api.patch("vm", "by-hand", ANYWHERE)
    with uncordoned(kubectl, node):
        done = drain(kubectl, node, *names, timeout=120)
        assert done.returncode == 0, done.stderr
        for name in names:
            runs_elsewhere(kubectl, name, node, timeout=120)
    for name in names:
        first = kubectl.api.get("vm", name)["status"]["attempts"][0]
        assert first["result"] == "Stopped"
        assert "was evicted, as by kubectl drain" in first["message"] or "received an eviction, as from kubectl drain" in first["message"]

    for name in names:
        kubectl.api.delete("pod", kubectl.api.get("vm", name)["status"]["podName"])
    for name in names:
        stopped = kubectl.api.until("vm", name, in_phase("Stopped"), timeout=90, what=f"{name} is off")
        assert len(stopped["status"]["attempts"]) == 2


def test_drained_node_is_the_reason_to_run_elsewhere(kubectl: Kubectl, testguest: None) -> None:
    kubectl.api.create(tiny_vm("drained", evictionStrategy="Shutdown"))
    node = kubectl.api.ready("vm", "drained", timeout=90)["status"]["nodeName"]
    with uncordoned(kubectl, node):
        done = drain(kubectl, node, "drained", timeout=90)
        assert done.returncode == 0, done.stderr

        told = kubectl.api.until_list(
            "events",
            lambda found: any(each["reason"] == "EvictionByEvictionAPI" for each in found),
            timeout=60,
            what="Event EvictionByEvictionAPI",
            field_selector="involvedObject.name=drained",
        )
        assert any(f"on node {node} was evicted, as by kubectl drain" in each["message"] for each in told)
        moved = runs_elsewhere(kubectl, "drained", node, timeout=150)
        assert "evicted" in json.dumps(moved["status"]["attempts"][0])


def test_etcds_only_member_is_not_evicted_and_says_what_moves_it(system: Kubectl) -> None:
    for ask in (rehearsed, refused):
        said = ask(system, "kubevirt-etcd-0")
        assert "is the only member of etcd" in said
        assert "kubectl virt move-etcd --to NODE" in said
    assert system.api.get("pdb", "kubevirt-etcd")["status"]["disruptionsAllowed"] == 0
