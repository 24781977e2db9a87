from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from apiserver.apis.meta.objects import dig
from tests.cluster.api import condition_of, is_true
from tests.cluster.guests import answers, counting_vm, counts_on, ticks
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import migration, with_disks
from tests.cluster.test_migrations import final_phase, other_node

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

VM = "edited"


def boot_of(kubectl: Kubectl) -> str:
    with console(kubectl, VM) as guest:
        answers(guest)
        guest.type("uptime\n")
        return guest.expect(r"boot=(\S+) commands=")[1]


def mebibytes(kubectl: Kubectl) -> int:
    with console(kubectl, VM) as guest:
        answers(guest)
        guest.type("fill 140\n")
        return int(guest.expect(r"filled (\d+)\r?\n")[1])


def pod_of(kubectl: Kubectl, vm: dict[str, Any]) -> tuple[Any, set[str]]:
    spec = kubectl.api.get("pod", vm["status"]["podName"])["spec"]
    return spec["containers"][0]["resources"], {each["name"] for each in spec["volumes"]}


def test_an_edit_is_applied_by_a_restart_and_by_nothing_before(kubectl: Kubectl) -> None:
    manifest = counting_vm(VM)
    kubectl.apply(manifest)
    vm = kubectl.api.ready("vm", VM, timeout=90)
    boot, count, pod = boot_of(kubectl), ticks(kubectl, VM)[-1], pod_of(kubectl, vm)

    desired = with_disks(
        copy.deepcopy(manifest), {"name": "scratch", "type": "EmptyDisk", "dedicatedIOThread": True, "source": {"size": "8Mi"}}
    )
    desired["spec"]["domain"]["memory"]["guest"] = "192Mi"
    for _ in range(2):  # a GitOps tool applies repeatedly, and finds no difference
        kubectl.apply(desired)
        assert kubectl.try_run("diff", "-f", "-", stdin=json.dumps(desired)).returncode == 0
    vm = kubectl.api.until("vm", VM, is_true("RestartRequired"), timeout=30, what="RestartRequired")
    message = str(condition_of(vm, "RestartRequired")["message"])
    assert "spec.domain.devices.disks[scratch] (added), spec.domain.memory.guest" in message
    assert dig(vm, "status", "running", "domain", "memory", "guest") == "128Mi"
    assert condition_of(vm, "Ready")["status"] == "True"
    kubectl.api.events("RestartRequired", of=VM, timeout=10)
    count = counts_on(kubectl, VM, count)

    made = kubectl.api.create(migration(VM, node=other_node(kubectl, vm["status"]["nodeName"])))
    assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"
    moved = kubectl.api.get("vm", VM)
    assert moved["status"]["podName"] != vm["status"]["podName"]
    assert pod_of(kubectl, moved) == pod
    counts_on(kubectl, VM, count)
    assert boot_of(kubectl) == boot
    assert mebibytes(kubectl) < 128
    assert moved["status"]["running"] == vm["status"]["running"]
    assert is_true("RestartRequired")(moved)

    kubectl.api.verb(VM, "restart")
    again = kubectl.api.until(
        "vm", VM, lambda each: each["status"].get("attempt") == 2 and is_true("Ready")(each), timeout=120, what="a restart"
    )
    assert mebibytes(kubectl) == 140
    assert boot_of(kubectl) != boot
    assert "running" not in again["status"]
    assert not condition_of(again, "RestartRequired")
    assert [each["target"] for each in again["status"]["devices"] if (each["kind"], each["name"]) == ("disk", "scratch")] == ["vda"]
    assert re.search(r"pci \S+", str(again["status"]["devices"][0]["address"]))
