from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition, dig, name_of
from apiserver.apis.virt.places import layout, shape
from apiserver.apis.virt.places.saved_image import Image
from controller.reconcilers import disk_claims, precedence
from controller.reconcilers.actions import CreatePod, Emit, Requeue, WriteStatus
from controller.reconcilers.launcher_pods import launcher_pod
from controller.reconcilers.settings import Settings
from controller.reconcilers.trimming import trim_pod
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.virtual_machine_plan import plan
from tests.unit.controller.reconcilers.builders import UID, a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
ID = "0b7c1a52-0000-4000-8000-000000000001"
IMAGE = Image(ID, 64 * "a", 7)
KEPT = {"id": ID, "claimName": "memory", "file": f"{UID}/{ID}", "digest": f"sha256:{64 * 'a'}", "sizeBytes": 7}
PULLING = {"name": "compute", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
CLAIMS = {"memory": {"metadata": {"name": "memory"}, "spec": {"volumeMode": "Filesystem", "accessModes": ["ReadWriteMany"]}}}


def seen(vm: dict[str, Any], *pods: dict[str, Any], **rest: Any) -> Observed:
    kept = tuple(map(trim_pod, pods))
    return Observed(vm=vm, **{"pods": kept, "claims": CLAIMS, "now": NOW, "settings": Settings("launcher"), **rest})


def suspended(**rest: Any) -> dict[str, Any]:
    attempts = [an_attempt(1, result="Suspended", endTime="2026-01-01T00:00:00Z")]
    vm = a_vm(phase="Suspended", attempts=attempts, managedSave={"claimName": "memory"}, **rest)
    vm["status"]["managedSave"] = KEPT
    return vm


def status_of(*actions: object) -> dict[str, Any]:
    return next(each.status for each in actions if isinstance(each, WriteStatus))


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure", "Once", "Manual", "Halted"])
def test_suspended_machine_gets_no_pod(strategy: str) -> None:
    assert not [each for each in plan(seen(suspended(runStrategy=strategy))) if isinstance(each, CreatePod)]


def test_next_pod_has_the_claim_and_the_saved_hardware() -> None:
    vm = suspended()
    vm["status"]["request"] = {"action": "Start", "attempt": 2, "runStrategy": vm["spec"]["runStrategy"]}
    vm["status"]["cpu"] = {"model": "EPYC"}
    vm["status"]["running"] = {"generation": 1, "domain": {"memory": {"guest": "64Mi"}}, "managedSave": {"claimName": "memory"}}
    vm["spec"]["domain"] = {"memory": {"guest": "64Gi"}}
    vm["status"] = status_of(*plan(seen(vm)))
    told = condition(vm["status"]["conditions"], "RestartRequired")
    assert told is not None
    assert told["message"] == (
        "the suspended guest lacks these edits: spec.domain.memory.guest; they count from its next start on: kubectl virt resume testvm, "
        "then kubectl virt restart testvm (or kubectl virt start testvm --discard-state, which deletes the guest's memory)"
    )
    actions = plan(seen(vm))
    (made,) = (each for each in actions if isinstance(each, CreatePod))
    mounts = {each["mountPath"] for each in made.pod["spec"]["containers"][0]["volumeMounts"]}
    assert layout.MANAGED_SAVE_DIRECTORY in mounts
    assert "Gi" not in made.pod["spec"]["containers"][0]["resources"]["requests"]["memory"]
    assert int(made.pod["spec"]["containers"][0]["resources"]["requests"]["memory"].removesuffix("Mi")) < 1024
    status = status_of(*actions)
    assert status["managedSave"] == KEPT
    assert status["cpu"] == {"model": "EPYC"}


def resuming(model: str | None = None, kind: str = "kvm", **spec: Any) -> dict[str, Any]:
    vm = suspended(**spec)
    vm["spec"]["domain"] = {**vm["spec"].get("domain", {}), "cpu": {"model": model} if model else {}}
    vm["status"] |= {"request": {"action": "Start", "attempt": 2, "runStrategy": vm["spec"]["runStrategy"]}, "cpu": {"model": ""}}
    vm["status"]["managedSave"] = {**KEPT, "type": kind, "nodeName": "node1"}
    return vm


def on_node_disk(**rest: Any) -> dict[str, Any]:
    vm = resuming("EPYC", kind="qemu", **rest)
    vm["spec"]["managedSave"] = {"nodeDisk": {}}
    del vm["status"]["managedSave"]["claimName"]
    return vm


def made_pod(vm: dict[str, Any]) -> dict[str, Any]:
    (made,) = (each for each in plan(seen(vm)) if isinstance(each, CreatePod))
    return made.pod


def required_nodes(vm: dict[str, Any]) -> list[Any]:
    affinity = made_pod(vm)["spec"].get("affinity") or {}
    return [
        each
        for term in dig(affinity, "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms") or ()
        for each in term["matchFields"]
    ]


NODE1 = [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]


@pytest.mark.parametrize("model", [None, "host-model", "host-passthrough"])
def test_a_guest_with_its_nodes_cpu_resumes_only_there(model: str | None) -> None:
    vm = resuming(model)
    assert required_nodes(vm) == NODE1
    assert required_nodes(resuming(model, nodeName="node1")) == NODE1
    vm["status"]["cpu"] = {"model": "host-passthrough", "message": "no choice"}
    assert required_nodes(vm) == NODE1


def test_a_guest_resumes_on_its_non_operational_node() -> None:
    tolerated = {"key": "kubevirt.io/non-operational", "operator": "Exists", "effect": "NoSchedule"}
    assert tolerated in made_pod(resuming())["spec"]["tolerations"]
    assert tolerated not in made_pod(resuming("EPYC"))["spec"]["tolerations"], "another node is possible"


def test_resume_without_the_claim_says_what_is_lost() -> None:
    told = condition(status_of(*plan(seen(resuming("EPYC"), claims={"memory": None})))["conditions"], "DisksReady")
    assert told is not None
    assert told["message"] == (
        "PersistentVolumeClaim not found: memory; the virtual machine starts when it exists; the suspended guest's memory was in memory, "
        "and a new claim does not have it; to boot without it: kubectl virt stop testvm, create the claim, then kubectl virt start testvm "
        "--discard-state"
    )
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "other"}}
    booting, with_disk = resuming("EPYC"), resuming("EPYC", domain={"memory": {"guest": "64Mi"}, "devices": {"disks": [disk]}})
    del booting["status"]["managedSave"]
    for vm, claims in ((booting, {"memory": None}), (with_disk, {**CLAIMS, "other": None})):
        told = condition(status_of(*plan(seen(vm, claims=claims)))["conditions"], "DisksReady")
        assert told is not None
        assert (told["reason"], "suspended" in told["message"]) == ("ClaimNotFound", False)


def test_other_guests_resume_on_any_node() -> None:
    assert required_nodes(resuming("EPYC")) == []
    assert required_nodes(resuming("host-passthrough", kind="qemu")) == []
    vm = resuming()
    vm["status"]["cpu"] = {"model": "EPYC"}
    assert required_nodes(vm) == []


@pytest.mark.parametrize("what", ["the CPU", "its memory on the disk"])
def test_a_resume_that_no_node_takes_names_the_node_it_needs(what: str) -> None:
    vm = resuming() if what == "the CPU" else on_node_disk()
    vm["status"] |= status_of(*plan(seen(vm)))
    pod = a_pod(2, phase="Pending")
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}]
    vm["status"]["podUID"] = pod["metadata"]["uid"]
    told = condition(status_of(*plan(seen(vm, pod)))["conditions"], "Ready")
    assert told is not None
    assert f"the suspended guest has {what} of node node1, and resumes only there; to boot it without" in told["message"]
    pod["status"] = {**a_pod(2, phase="Pending")["status"], "containerStatuses": [PULLING]}
    told = condition(status_of(*plan(seen(vm, pod)))["conditions"], "Ready")
    assert told is not None
    assert (told["reason"], "resumes only there" in told["message"]) == ("ImagePullBackOff", False)


def a_saved_pod(vm: dict[str, Any], message: str) -> dict[str, Any]:
    pod = a_pod(phase="Succeeded", exit_code=0)
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = message
    return pod


def test_end_that_virt_handler_missed_is_read_from_the_pod() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt(1)], managedSave={"claimName": "memory"})
    vm["status"]["operations"] = [{"id": ID, "number": 1, "action": "Suspend", "attempt": 1}]
    vm["status"] |= {"podName": name_of(a_pod()), "podUID": a_pod()["metadata"]["uid"], "nodeName": "node1"}
    status = status_of(*plan(seen(vm, a_saved_pod(vm, f"saved: the guest's memory was {IMAGE}"))))
    assert (status["phase"], status["attempts"][-1]["result"]) == ("Suspended", "Suspended")
    assert (status["managedSave"]["id"], status["managedSave"]["nodeName"]) == (ID, "node1")
    assert status["operations"][0]["result"] == "Succeeded"
    assert "kubectl virt resume" in status["attempts"][-1]["message"]
    stopped = {**vm, "spec": {**vm["spec"], "runStrategy": "Halted"}}
    assert status_of(*plan(seen(stopped, a_saved_pod(vm, f"saved: the guest's memory was {IMAGE}"))))["phase"] == "Suspended"
    vm["status"]["operations"] = []
    status = status_of(*plan(seen(vm, a_saved_pod(vm, f"saved: the guest's memory was {IMAGE}"))))
    assert status["attempts"][-1]["result"] == "Failed"
    assert "managedSave" not in status


def test_suspended_machine_keeps_its_disks_from_others() -> None:
    vm = suspended()
    assert precedence.holds(vm)
    assert precedence.goes_before(vm, a_vm())
    assert disk_claims.claims_of(vm)[-1] == "memory"


def removal(vm: dict[str, Any], phase: str, *, exit_code: int | None = None, created: str = "2026-01-01T00:00:59Z") -> dict[str, Any]:
    pod = a_pod(phase=phase, exit_code=exit_code)
    pod["metadata"] |= {"name": launcher_pod.removal_pod_name(vm), "uid": "removal", "creationTimestamp": created}
    return pod


def kinds(*actions: object) -> list[str]:
    return [type(each).__name__ for each in actions]


def test_deleted_machine_goes_after_a_pod_deleted_its_image() -> None:
    vm = suspended(deleting=True)
    actions = plan(seen(vm))
    assert kinds(*actions) == ["CreatePod", "Requeue"]
    (made, _) = actions
    assert isinstance(made, CreatePod)
    assert shape.fits(made.pod)
    (container,) = made.pod["spec"]["containers"]
    assert "args" not in container
    assert container["volumeMounts"][-1] == {"name": "managed-save", "mountPath": layout.IMAGE_REMOVAL_DIRECTORY, "subPath": UID}
    claims = [each["persistentVolumeClaim"] for each in made.pod["spec"]["volumes"] if "persistentVolumeClaim" in each]
    assert claims == [{"claimName": "memory"}]
    assert int(container["resources"]["requests"]["memory"].removesuffix("Mi")) < 200
    others = [a_pod(each, phase="Succeeded", exit_code=0) for each in (1, 2)]
    assert kinds(*plan(seen(vm, *others))) == ["CreatePod", "Requeue"]
    assert kinds(*plan(seen(vm, removal(vm, "Pending")))) == ["Requeue"]
    assert kinds(*plan(seen(vm, removal(vm, "Running")))) == ["Requeue"]
    assert kinds(*plan(seen(vm, removal(vm, "Succeeded", exit_code=0)))) == ["DeletePod", "RemoveFinalizer"]


def test_deleted_machine_leaves_no_file_that_its_status_lacks() -> None:
    vm = suspended(deleting=True)
    del vm["status"]["managedSave"]
    (made, _) = plan(seen(vm))
    assert isinstance(made, CreatePod)
    assert {"claimName": "memory"} in [each.get("persistentVolumeClaim") for each in made.pod["spec"]["volumes"]]
    assert kinds(*plan(seen(vm, removal(vm, "Running")))) == ["Requeue"]
    (told, *_) = plan(seen(vm, removal(vm, "Failed", exit_code=1)))
    assert f"the guest's memory may stay in PersistentVolumeClaim memory, directory {UID}" in str(told)


def test_deleted_machine_without_memory_in_a_claim_goes_at_once() -> None:
    vm = suspended(deleting=True)
    del vm["status"]["managedSave"]
    device = {"memory": {**CLAIMS["memory"], "spec": {"volumeMode": "Block", "accessModes": ["ReadWriteMany"]}}}
    assert kinds(*plan(seen(vm, claims=device))) == ["RemoveFinalizer"]
    del vm["spec"]["managedSave"]
    assert kinds(*plan(seen(vm))) == ["RemoveFinalizer"]
    never = a_vm(managedSave={"claimName": "memory"}, deleting=True)
    assert kinds(*plan(seen(never))) == ["RemoveFinalizer"]


def test_an_undeletable_image_does_not_keep_the_machine() -> None:
    vm = suspended(deleting=True)
    gone = ["Emit", "RemoveFinalizer"]
    assert kinds(*plan(seen(vm, refusal="the namespace is being terminated"))) == gone
    assert kinds(*plan(seen(vm, removal(vm, "Failed", exit_code=1)))) == ["Emit", "DeletePod", "RemoveFinalizer"]
    late = removal(vm, "Pending", created="2025-12-31T23:55:00Z")
    assert kinds(*plan(seen(vm, late))) == ["Emit", "DeletePod", "RemoveFinalizer"]
    for claims in ({"memory": None}, {"memory": {"metadata": {"name": "memory", "deletionTimestamp": "2026-01-01T00:00:00Z"}}}):
        assert kinds(*plan(seen(vm, claims=claims))) == ["RemoveFinalizer"]


@pytest.mark.parametrize(("age", "left"), [(100.0, 200.0), (299.25, 0.75), (300.0, None)])
def test_an_image_has_five_minutes_to_be_deleted(age: float, left: float | None) -> None:
    vm = suspended(deleting=True)
    pod = removal(vm, "Running", created="2026-01-01T00:00:00Z")
    actions = plan(seen(vm, pod, now=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=age)))
    assert [each.seconds for each in actions if isinstance(each, Requeue)] == ([] if left is None else [left])
    assert any(isinstance(each, Emit) for each in actions) is (left is None)


def test_a_resuming_guest_ends_before_its_image_is_deleted() -> None:
    vm = suspended(deleting=True)
    vm["status"] |= {"phase": "Scheduling", "attempt": 2, "attempts": [*vm["status"]["attempts"], an_attempt(2)]}
    assert "CreatePod" not in kinds(*plan(seen(vm, a_pod(2))))


def test_memory_on_a_nodes_disk_resumes_only_there() -> None:
    assert required_nodes(on_node_disk()) == NODE1
    vm = on_node_disk(nodeName="node2")
    told = condition(status_of(*plan(seen(vm)))["conditions"], "Ready")
    assert told is not None
    assert told["message"] == (
        "spec.nodeName is node2, but the suspended guest has its memory on the disk of node node1, and resumes only there; to boot it "
        "without its memory: kubectl virt stop, then kubectl virt start --discard-state"
    )


def test_deletion_does_not_wait_for_the_node_with_the_memory() -> None:
    vm = on_node_disk(deleting=True)
    vm["status"].pop("request")
    assert kinds(*plan(seen(vm))) == ["RemoveFinalizer"]
