"""The ordinary life of a cluster: stops during a start, drains, registries that are away, mistakes that are mended; on real parts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from apiserver.apis.virt import names
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import linux_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

GRACE_SECONDS = 60
"""Of the machines that are stopped here: a lost signal shows as a wait of this length."""


def seen(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.json("get", "vm", name)
    return found


def attempts(vm: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = vm.get("status", {}).get("attempts", [])
    return found


def phase(kubectl: Kubectl, name: str) -> str:
    return str(seen(kubectl, name).get("status", {}).get("phase", ""))


def word(kubectl: Kubectl, name: str) -> str:
    """Return what ``kubectl get vms`` shows in its column STATUS."""
    header, row = kubectl("get", "vm", name).splitlines()
    return row.split()[header.split().index("STATUS")]


def events(kubectl: Kubectl, name: str) -> dict[str, str]:
    """Return the messages of the Events on a machine, by their reasons."""
    chosen = ("--field-selector", f"involvedObject.name={name}")
    return {each["reason"]: each["message"] for each in kubectl.json("get", "events", *chosen)["items"]}


def strategy(kubectl: Kubectl, name: str, value: str) -> None:
    kubectl("patch", "vm", name, "--type=merge", "-p", json.dumps({"spec": {"runStrategy": value}}))


def request(kubectl: Kubectl, name: str, action: str) -> None:
    """Request what ``kubectl virt`` would, which takes longer to begin on a busy machine than a guest does."""
    path = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/{kubectl.namespace}/virtualmachines/{name}/{action}"
    kubectl("replace", "--raw", path, "-f", "-", stdin="{}")


def start_to_schedule(kubectl: Kubectl, name: str) -> None:
    """Create a machine and return as soon as it has a pod."""
    kubectl.apply(linux_vm(name, terminationGracePeriodSeconds=GRACE_SECONDS))
    eventually(lambda: phase(kubectl, name) not in {"", "Pending"}, timeout=90, interval=0.05, what="a pod is made")


def asked_while_it_starts(kubectl: Kubectl, prefix: str, ask: Callable[[str], object]) -> str:
    """Create machines until one has a pod and is asked before its guest runs; return its name. On a busy machine a guest is quicker."""
    for number in range(8):
        name = f"{prefix}-{number}"
        start_to_schedule(kubectl, name)
        ask(name)
        if "runningTime" not in attempts(seen(kubectl, name))[0]:
            return name
        kubectl("patch", "vm", name, "--type=merge", "-p", json.dumps({"spec": {"terminationGracePeriodSeconds": 0}}))
        kubectl("delete", "vm", name, "--wait=false")
    pytest.fail("each guest ran before anything was asked of its machine")


@pytest.mark.parametrize("how", ["stop", "Halted"])
def test_a_machine_that_is_stopped_while_it_starts_does_not_wait_for_its_grace_period(kubectl: Kubectl, how: str) -> None:
    def ask(name: str) -> None:
        if how == "stop":
            request(kubectl, name, "stop")
        else:
            strategy(kubectl, name, how)

    name = asked_while_it_starts(kubectl, f"early-{how.lower()}", ask)
    asked = time.monotonic()

    eventually(lambda: phase(kubectl, name) == "Stopped", timeout=GRACE_SECONDS / 3, what="phase Stopped")
    print(f"\n[{how} while starting took {time.monotonic() - asked:.1f} s]")
    assert word(kubectl, name) == "Stopped"


def test_a_machine_that_is_restarted_while_it_starts_runs_in_a_second_pod(kubectl: Kubectl) -> None:
    name = asked_while_it_starts(kubectl, "early-restart", lambda name: request(kubectl, name, "restart"))

    eventually(lambda: len(attempts(seen(kubectl, name))) == 2, timeout=GRACE_SECONDS / 2, what="a second attempt")
    kubectl("wait", "vm", name, "--for=condition=Ready", "--timeout=120s", timeout=130)
    assert len(attempts(seen(kubectl, name))) == 2


def test_halted_and_then_always_ends_one_attempt_and_runs_another(kubectl: Kubectl) -> None:
    name = asked_while_it_starts(kubectl, "twice", lambda name: strategy(kubectl, name, "Halted"))
    eventually(lambda: phase(kubectl, name) == "Stopped", timeout=GRACE_SECONDS / 3, what="phase Stopped")

    strategy(kubectl, name, "Always")

    eventually(lambda: phase(kubectl, name) == "Running", timeout=120, what="phase Running")
    first, second = attempts(seen(kubectl, name))
    assert "137" not in json.dumps(first)
    assert "endTime" not in second
    assert not [each for each in events(kubectl, name).values() if "137" in each]


def test_a_drained_node_is_named_as_the_reason_and_the_machine_runs_on_the_other(kubectl: Kubectl) -> None:
    kubectl.apply(linux_vm("drained", evictionStrategy="Shutdown"))
    kubectl("wait", "vm", "drained", "--for=condition=Ready", "--timeout=90s", timeout=100)
    with console(kubectl, "drained") as guest:
        guest.expect("GUEST-READY", timeout=120)
    node = seen(kubectl, "drained")["status"]["nodeName"]
    chosen = ("--pod-selector=vm.kubevirt.io/name=drained", "--force", "--ignore-daemonsets", "--delete-emptydir-data")
    try:
        kubectl("drain", node, *chosen, "--timeout=90s", timeout=100)

        told = eventually(lambda: events(kubectl, "drained").get("EvictionByEvictionAPI"), timeout=60, what="Event EvictionByEvictionAPI")
        assert f"on node {node} was evicted, as by kubectl drain" in told
        moved = eventually(
            lambda: (vm := seen(kubectl, "drained"))["status"]["phase"] == "Running" and vm["status"]["nodeName"] != node and vm,
            timeout=150,
            what="it runs on another node",
        )
        assert "evicted" in json.dumps(attempts(moved)[0])
    finally:
        kubectl("uncordon", node)


def test_an_image_that_cannot_be_pulled_is_waited_for_and_a_mended_one_runs(kubectl: Kubectl) -> None:
    manifest = linux_vm("far-away", rerun={"limit": 0, "startTimeoutSeconds": 10})
    boot = manifest["spec"]["domain"]["firmware"]["kernelBoot"]["container"]
    right, boot["image"] = boot["image"], "localhost/kubevirt/no-such-image:dev"
    kubectl.apply(manifest)
    eventually(lambda: word(kubectl, "far-away") in {"ErrImagePull", "ImagePullBackOff"}, timeout=60, what="the table says that it waits")

    time.sleep(2 * manifest["spec"]["rerun"]["startTimeoutSeconds"])  # longer than a start may take, were this one

    assert word(kubectl, "far-away") in {"ErrImagePull", "ImagePullBackOff"}
    assert len(attempts(seen(kubectl, "far-away"))) <= 1
    assert "no-such-image" in kubectl("get", "vm", "far-away", "-o", "wide")
    boot["image"] = right
    kubectl.apply(manifest)
    kubectl("wait", "vm", "far-away", "--for=condition=Ready", "--timeout=90s", timeout=100)
    assert word(kubectl, "far-away") == "Running"


def test_the_table_says_in_a_word_what_keeps_a_machine_from_running(kubectl: Kubectl) -> None:
    kubectl.apply(linux_vm("nowhere", nodeSelector={"cpu": "none-has-this"}), linux_vm("halted", runStrategy="Halted"), linux_vm("calm"))
    kubectl("wait", "vm", "calm", "--for=condition=Ready", "--timeout=90s", timeout=100)
    eventually(lambda: word(kubectl, "nowhere") == "ErrorUnschedulable", timeout=90, what="the word of a machine that fits no node")
    assert "node" in kubectl("get", "vm", "nowhere", "-o", "wide").splitlines()[1]
    eventually(lambda: word(kubectl, "halted") == "Stopped", timeout=90, what="the word of a machine that is halted")
    kubectl("virt", "pause", "calm")
    eventually(lambda: word(kubectl, "calm") == "Paused", timeout=90, what="the word of a machine that is paused")
