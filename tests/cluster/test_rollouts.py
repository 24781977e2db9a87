"""Updates of a set's guests, with the user's commands."""

from __future__ import annotations

from typing import Any, Final

import pytest

from apiserver.apis.meta.objects import Object, condition, dig, labels_of, name_of
from tests.cluster.api import condition_of, is_true
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import tiny_vm, with_disks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SETS: Final = "virtualmachinereplicasets"
DB: Final = {"app": "db"}
SLOW: Final = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "8Mi"}, "ioTune": {"totalIopsSec": 10}}


def a_pool() -> Object:
    scratch = {key: SLOW[key] for key in ("name", "type", "source")}
    template = {"metadata": {"labels": DB}, "spec": with_disks(tiny_vm(""), scratch)["spec"]}
    spec = {"replicas": 2, "ordinals": {}, "selector": {"matchLabels": DB}, "template": template}
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachineReplicaSet", "metadata": {"name": "db"}, "spec": spec}


class Pool:
    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl

    def virt(self, *arguments: str) -> str:
        return self._kubectl("virt", "rollout", arguments[0], "vmrs/db", *arguments[1:]).strip()

    def edit(self, **domain: Any) -> None:
        patch = {"spec": {"template": {"spec": {"domain": domain}}}}
        self._kubectl.api.patch(SETS, "db", patch)

    def updated(self) -> list[Object]:
        assert self.virt("status", "--timeout", "5m").endswith("successfully rolled out")
        found = self.machines()
        newest = dig(self._kubectl.api.get(SETS, "db"), "status", "updateRevision")
        assert [labels_of(each)["kubevirt.io/revision"] for each in found] == [newest, newest]
        assert not any(condition_of(each, "RestartRequired") for each in found)
        return found

    def machines(self) -> list[Object]:
        return sorted(self._kubectl.api.list("vms", label_selector="app=db"), key=name_of)


def attempts(machines: list[Object]) -> list[int]:
    return [dig(each, "status", "attempt") for each in machines]


def ready_since(vm: Object) -> str:
    return str((condition(dig(vm, "status", "conditions"), "Ready") or {})["lastTransitionTime"])


def test_guests_of_a_set_follow_its_template(kubectl: Kubectl, testguest: None) -> None:
    kubectl.api.create(a_pool())
    pool = Pool(kubectl)
    assert attempts(pool.updated()) == [1, 1]

    pool.edit(devices={"disks": [SLOW]})
    assert attempts(pool.updated()) == [1, 1]
    kubectl.api.until("vm", "db-0", lambda each: "running" not in each["status"], timeout=60, what="the guest takes the edit")

    pool.edit(memory={"guest": "144Mi"})
    first, second = pool.updated()
    assert attempts([first, second]) == [2, 2]
    assert dig(first, "status", "attempts")[-1]["startTime"] >= ready_since(second), "the second one came first, and was ready"

    pool.edit(firmware={"kernelBoot": {"container": {"kernelPath": "/none"}}})
    kubectl.api.until("vm", "db-1", lambda each: not is_true("Ready")(each), timeout=120, what="the end of the guest")
    failed = kubectl.try_run("virt", "rollout", "status", "vmrs/db", "--timeout", "15s")
    assert failed.returncode == 1
    assert "1 of 2 machines are available; 1 have the newest template; db-1: " in failed.stdout
    assert pool.virt("undo").endswith("rolled back")
    untouched, repaired = pool.updated()
    assert (attempts([untouched])[0], is_true("Ready")(repaired)) == (2, True)
    assert dig(repaired, "spec", "domain", "firmware", "kernelBoot", "container", "kernelPath") == "/boot/tiny"

    kubectl("virt", "stop", "db-0", "--wait")
    before = attempts(pool.machines())
    pool.virt("restart")
    stopped, restarted = pool.updated()
    assert dig(stopped, "status", "phase") == "Stopped"
    assert attempts([stopped, restarted]) == [before[0], before[1] + 1]
    assert [line.split()[0] for line in pool.virt("history").splitlines()[2:]] == ["1", "2", "4", "5", "6"]
    kubectl.api.delete_all(SETS, timeout=120)
