"""Edits of a running guest's disks, and what the tests of hot-plugged disks share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from apiserver.apis.meta.objects import Object
from tests.cluster.kube import Console, Kubectl, console
from tests.cluster.manifests import migration
from tests.cluster.test_migrations import final_phase, other_node
from tests.damage import never_again

VM = "plugged"
ROOT = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "8Mi"}}
DATA: dict[str, Any] = {
    "name": "data",
    "type": "PersistentVolumeClaim",
    "source": {"name": "data", "create": {"size": "16Mi"}},
    "serial": "hotplugged",
}


@pytest.fixture(autouse=True)
def cleared(kubectl: Kubectl) -> Iterator[None]:
    yield
    for kind, name in (("vm", VM), ("pvc", "data")):
        if kubectl.api.find(kind, name):
            kubectl.api.delete(kind, name)
            kubectl.api.gone(kind, name, timeout=120)


def edit(kubectl: Kubectl, *disks: dict[str, Any]) -> None:
    kubectl.api.patch("vm", VM, {"spec": {"domain": {"devices": {"disks": list(disks)}}}})


def names(vm: Object) -> list[str]:
    return [each["name"] for each in vm["status"].get("devices") or () if each["kind"] == "disk" and not each.get("empty")]


def until_disks(kubectl: Kubectl, *expected: str) -> Object:
    def check(vm: Object) -> bool:
        return names(vm) == list(expected) and "running" not in vm["status"]

    return kubectl.api.until("vm", VM, check, timeout=90, what=f"disks {expected}")


def attachment_pods(kubectl: Kubectl) -> list[str]:
    found = kubectl.api.list("pods", label_selector=f"vm.kubevirt.io/name={VM}")
    return [each["metadata"]["name"] for each in found if "-volume-" in each["metadata"]["name"]]


def no_attachment_pod(kubectl: Kubectl) -> None:
    kubectl.api.until_list(
        "pods", lambda found: not any("-volume-" in each["metadata"]["name"] for each in found), timeout=60, what="no attachment pod"
    )


def sees_disk(guest: Console) -> None:
    guest.run("n=0; while test ! -e /sys/block/vdb/serial -a $n -lt 30; do sleep 1; n=$((n+1)); done")
    assert "hotplugged" in guest.run("cat /sys/block/vdb/serial")


def has_disk(guest: Console) -> bool:
    return "vdb" in guest.run("ls /sys/block").split()


def reads_it_elsewhere_and_lets_go(kubectl: Kubectl, node: str) -> None:
    made = kubectl.api.create(migration(VM, node=other_node(kubectl, node)))
    assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"
    with console(kubectl, VM) as guest:
        with never_again("a lost write"):
            assert "of-the-guest" in guest.run("head -c 12 /dev/vdb")
        edit(kubectl, ROOT)
        until_disks(kubectl, "scratch")
        assert not has_disk(guest)
