from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, dig, name_of
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from tests.cluster.api import has, in_phase, is_true
from tests.cluster.holding import Held, held
from tests.cluster.kube import ROOT, Kubectl, eventually
from tests.cluster.manifests import tiny_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

GRACE_SECONDS = 120
START_SECONDS = 10


def starting(name: str) -> dict[str, Any]:
    return tiny_vm(name, terminationGracePeriodSeconds=GRACE_SECONDS)


def attempts(vm: Object) -> list[Object]:
    return dig(vm, "status", "attempts") or []


def word(kubectl: Kubectl, name: str) -> str:
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = kubectl.api.request("GET", VIRTUAL_MACHINES.path(kubectl.namespace, name), headers=accept)
    columns = [each["name"] for each in table["columnDefinitions"]]
    (row,) = table["rows"]
    return str(row["cells"][columns.index("Status")])


def events(kubectl: Kubectl, name: str) -> dict[str, str]:
    return {each["reason"]: each["message"] for each in kubectl.api.list("events", field_selector=f"involvedObject.name={name}")}


def strategy(kubectl: Kubectl, name: str, value: str) -> None:
    kubectl.api.patch("vm", name, {"spec": {"runStrategy": value}})


def asked(kubectl: Kubectl, name: str, start: Held) -> None:
    eventually(start.is_asked_to_end, timeout=GRACE_SECONDS, interval=0.1, what="a SIGTERM to virt-launcher")
    assert "runningTime" not in attempts(kubectl.api.get("vm", name))[0]
    start.go_on()


@pytest.mark.parametrize("how", ["stop", "Halted"])
def test_stop_during_the_start_skips_the_grace_period(kubectl: Kubectl, testguest: None, how: str) -> None:
    name = f"early-{how.lower()}"
    with held(kubectl, starting(name)) as start:
        if how == "stop":
            start.stands_still()
            kubectl.api.verb(name, "stop")
            asked(kubectl, name, start)
        else:
            strategy(kubectl, name, how)
        begun = time.monotonic()

    kubectl.api.until("vm", name, in_phase("Stopped"), timeout=GRACE_SECONDS / 2, what="phase Stopped")
    print(f"\n[{how} while starting took {time.monotonic() - begun:.1f} s]")
    assert word(kubectl, name) == "Stopped"


def test_restart_during_the_start_runs_a_second_pod(kubectl: Kubectl, testguest: None) -> None:
    with held(kubectl, starting("early-restart")) as start:
        start.stands_still()
        kubectl.api.verb("early-restart", "restart")
        asked(kubectl, "early-restart", start)

    kubectl.api.until("vm", "early-restart", lambda vm: len(attempts(vm)) == 2, timeout=GRACE_SECONDS / 2, what="a second attempt")
    assert len(attempts(kubectl.api.ready("vm", "early-restart", timeout=120))) == 2


def test_halted_then_always_ends_one_attempt_and_runs_another(kubectl: Kubectl, testguest: None) -> None:
    with held(kubectl, starting("twice")) as start:
        start.stands_still()
        strategy(kubectl, "twice", "Halted")
        asked(kubectl, "twice", start)
    kubectl.api.until("vm", "twice", in_phase("Stopped"), timeout=GRACE_SECONDS / 2, what="phase Stopped")

    strategy(kubectl, "twice", "Always")

    first, second = attempts(kubectl.api.until("vm", "twice", in_phase("Running"), timeout=120, what="phase Running"))
    assert "137" not in json.dumps(first)
    assert "endTime" not in second
    assert not [each for each in events(kubectl, "twice").values() if "137" in each]


def test_image_pull_failure_is_awaited_and_a_fixed_one_runs(kubectl: Kubectl, testguest: None) -> None:
    manifest = tiny_vm("far-away", rerun={"limit": 0, "startTimeoutSeconds": START_SECONDS})
    boot = manifest["spec"]["domain"]["firmware"]["kernelBoot"]["container"]
    right, boot["image"] = boot["image"], "localhost/kubevirt/no-such-image:dev"
    kubectl.api.create(manifest)
    eventually(lambda: word(kubectl, "far-away") in {"ErrImagePull", "ImagePullBackOff"}, timeout=60, what="the table says that it waits")

    (pod,) = kubectl.api.list("pods", label_selector="vm.kubevirt.io/name=far-away")
    late = times.parse(pod["metadata"]["creationTimestamp"]) + timedelta(seconds=2 * START_SECONDS)

    def are_late(found: list[Object]) -> bool:
        return any(times.parse(each["lastTimestamp"]) > late for each in found if each.get("lastTimestamp"))

    of_pod = f"involvedObject.name={name_of(pod)}"
    kubectl.api.until_list("events", are_late, timeout=120, what="a try of the kubelet after the start timeout", field_selector=of_pod)
    kubectl.api.patch("vm", "far-away", {"spec": {"rerun": {"startTimeoutSeconds": START_SECONDS + 1}}})
    kubectl.api.until("vm", "far-away", is_true("Ready", "False"), timeout=60, what="virt-controller has looked since")

    assert word(kubectl, "far-away") in {"ErrImagePull", "ImagePullBackOff"}
    assert len(attempts(kubectl.api.get("vm", "far-away"))) <= 1
    assert "no-such-image" in kubectl("get", "vm", "far-away", "-o", "wide")
    boot["image"] = right
    manifest["spec"]["rerun"]["startTimeoutSeconds"] = 300
    kubectl.api.patch("vm", "far-away", {"spec": manifest["spec"]})
    kubectl.api.ready("vm", "far-away", timeout=90)
    assert word(kubectl, "far-away") == "Running"


def test_table_shows_in_a_word_why_a_machine_does_not_run(kubectl: Kubectl, testguest: None) -> None:
    kubectl.api.apply(tiny_vm("nowhere", nodeSelector={"cpu": "none-has-this"}), tiny_vm("halted", runStrategy="Halted"), tiny_vm("calm"))
    kubectl.api.ready("vm", "calm", timeout=90)
    eventually(lambda: word(kubectl, "nowhere") == "ErrorUnschedulable", timeout=90, what="the word of a machine that fits no node")
    assert "node" in kubectl("get", "vm", "nowhere", "-o", "wide").splitlines()[1]
    eventually(lambda: word(kubectl, "halted") == "Stopped", timeout=90, what="the word of a machine that is halted")
    kubectl("virt", "pause", "calm")
    eventually(lambda: word(kubectl, "calm") == "Paused", timeout=90, what="the word of a machine that is paused")


def test_table_shows_a_reboot_loop_and_a_panic(kubectl: Kubectl, testguest: None) -> None:
    kubectl("apply", "-f", str(ROOT / "examples" / "guests-in-trouble.yaml"))
    eventually(lambda: word(kubectl, "reboots") == "RebootLoop", timeout=90, what="the word of a machine in a reboot loop")
    kubectl.api.until("vm", "reboots", has("RebootLoop", status="True"), timeout=30, what="the condition RebootLoop")
    assert kubectl.api.events("RebootLoop", of="reboots", timeout=30)[0]["type"] == "Warning"
    kubectl.api.delete("vm", "reboots", grace_period=0, timeout=60)  # it keeps a processor busy, and hears no power button
    eventually(lambda: word(kubectl, "panics") == "Panicked", timeout=90, what="the word of a machine with a panicked kernel")
