"""A tenant with all rights on pods causes no second QEMU, and no guest in a foreign pod.

``test_pod_policy.py`` and ``tests/cluster/test_owners.py`` have the real API.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import condition, dig, name_of, uid_of
from apiserver.apis.virt.lifecycle import departure
from apiserver.apis.virt.places import layout, names
from controller.reconcilers.pods.absences import TARGET_MAY_RUN, lingering_seconds
from controller.reconcilers.settings import Times
from tests.component.controller.test_controller import EVENTS, LEASES, MIGRATIONS, NODES, PODS, VMS, Cluster, a_vm, working
from tests.fakes.kubeapi import FakeAPI

Pod = dict[str, Any]
ENOUGH = 0.5
"""Seconds."""
KNOWN = "known-beforehand"
"""A tenant can create pods immediately after the VM, which a test cannot time."""
FORGED_IMAGE = "registry.example/evil:v1"


class Tenant(Cluster):
    def __init__(self, api: FakeAPI) -> None:
        super().__init__(api)
        self.now = 0.0

    def elapsed(self) -> float:
        return self.now

    async def strip(self, pod: Pod, *fields: str) -> None:
        def strip(obj: Pod) -> None:
            for each in fields:
                del obj["metadata"][each]

        await self.api.edit(PODS, "ns", name_of(pod), strip)

    def forged(self, name: str, namespace: str = "ns", uid: str = "") -> Pod:
        uid = uid or self.vm()["metadata"]["uid"]
        owner = {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "name": "testvm", "uid": uid, "controller": True}
        labels = {names.COMPONENT_LABEL: names.LAUNCHER, names.VM_NAME_LABEL: "testvm", names.CREATED_BY_LABEL: uid}
        annotations = {names.ATTEMPT_ANNOTATION: "1"}
        metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations, "ownerReferences": [owner]}
        mount = {"name": layout.RUN_VOLUME, "mountPath": layout.RUN_DIRECTORY}
        spec = {
            "nodeName": "node2",
            "terminationGracePeriodSeconds": 30,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [{"name": names.CONTAINER, "image": FORGED_IMAGE, "volumeMounts": [mount]}],
        }
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        status = {"phase": "Running", "podIP": "10.0.0.66", "containerStatuses": [{"name": names.CONTAINER, "state": state}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}

    def pods(self) -> list[Pod]:
        return [each for each in self.api.all(PODS) if each["metadata"]["namespace"] == "ns"]

    async def nothing_happens(self, vm: Any, pods: list[Pod]) -> None:
        await asyncio.sleep(ENOUGH)
        assert [uid_of(each) for each in self.pods()] == [uid_of(each) for each in pods]
        assert {key: vm["status"].get(key) for key in ("phase", "podUID", "attempt", "attempts")} == {
            key: self.vm()["status"].get(key) for key in ("phase", "podUID", "attempt", "attempts")
        }


PROTECTED = "virt-launcher-protected"


class ProtectingAPI(FakeAPI):
    async def _delete(self, key: tuple[str, str, str], options: Any) -> Any:
        if key[2] == PROTECTED:
            raise errors.Forbidden("a policy of the cluster protects it")
        return await super()._delete(key, options)


@pytest.fixture
async def api() -> FakeAPI:
    return ProtectingAPI()


@pytest.fixture
async def tenant(api: FakeAPI) -> AsyncIterator[Tenant]:
    tenant = Tenant(api)
    async with working(api, "--no-leader-elect", elapsed=tenant.elapsed, times=Times(unwatched=0.1)):
        yield tenant


@pytest.mark.parametrize("phase", ["first start", "Running"])
async def test_forged_pod_of_another_namespace_is_ignored(api: FakeAPI, tenant: Tenant, phase: str) -> None:
    vm = a_vm()
    vm["metadata"]["uid"] = KNOWN
    foreign = await api.put(PODS, tenant.forged(names.launcher_pod_name("testvm", KNOWN, 1), "elsewhere", KNOWN))
    await api.put(VMS, vm)
    own = await tenant.pod()
    await tenant.start_pod(own)
    await tenant.phase_is("Scheduled")
    assert tenant.vm()["status"]["podUID"] == uid_of(own) != uid_of(foreign)
    if phase == "Running":
        await tenant.report_running()
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    await tenant.until(lambda: api.get(PODS, "ns", name_of(own))["metadata"].get("deletionTimestamp"), "deletion of the pod")
    await tenant.end_pod(own)
    await tenant.until(lambda: api.all(VMS) == [], "the end of the machine")
    assert [each for method, path, each in api.writes if method == "DELETE" and "elsewhere" in path] == []


async def test_forged_second_pod_is_ignored_and_deleted_at_the_end(api: FakeAPI, tenant: Tenant) -> None:
    own = await tenant.running()
    forged = await api.put(PODS, tenant.forged("virt-launcher-aaa-first-by-name"))
    await tenant.nothing_happens(tenant.vm(), [forged, own])

    await tenant.end_pod(own)
    await tenant.until(
        lambda: dig(api.get(PODS, "ns", "virt-launcher-aaa-first-by-name"), "metadata", "deletionTimestamp") or False, "deletion"
    )
    assert tenant.vm()["status"]["podUID"] == uid_of(own)
    await api.remove(PODS, "ns", "virt-launcher-aaa-first-by-name")
    await tenant.phase_is("Succeeded")


async def test_forged_pod_named_like_the_next_attempt_is_replaced(api: FakeAPI, tenant: Tenant) -> None:
    vm = a_vm()
    vm["metadata"]["uid"] = KNOWN
    forged = await api.put(PODS, tenant.forged(names.launcher_pod_name("testvm", KNOWN, 1), uid=KNOWN))
    await api.put(VMS, vm)
    gone = await tenant.until(lambda: dig(api.get(PODS, "ns", name_of(forged)), "metadata", "deletionTimestamp"), "deletion")
    assert gone
    await tenant.phase_is("Pending")
    ready = condition(tenant.vm()["status"]["conditions"], "Ready")
    assert ready is not None
    assert ready["reason"] == "FailedCreate"
    assert "differs from the pod that virt-controller creates" in ready["message"]
    assert "podUID" not in tenant.vm()["status"]

    await api.remove(PODS, "ns", name_of(forged))
    await tenant.until(lambda: tenant.vm()["status"].get("podUID"), "a start")
    (own,) = tenant.pods()
    assert own["spec"]["containers"][0]["image"] == "launcher:test"
    assert tenant.vm()["status"]["podUID"] == uid_of(own)


async def test_foreign_pod_with_our_name_is_reported_and_left_alone(api: FakeAPI, tenant: Tenant) -> None:
    vm = a_vm()
    vm["metadata"]["uid"] = KNOWN
    name = names.launcher_pod_name("testvm", KNOWN, 1)
    await api.put(PODS, {"metadata": {"name": name, "namespace": "ns"}, "spec": {"containers": []}, "status": {"phase": "Running"}})
    await api.put(VMS, vm)
    await tenant.phase_is("Pending")
    ready = condition(tenant.vm()["status"]["conditions"], "Ready")
    assert ready is not None
    assert "it is not a launcher pod; delete that pod" in ready["message"]
    assert not [path for method, path, _ in api.writes if method == "DELETE"]


async def test_non_launcher_pod_claiming_the_machine_blocks_nothing(api: FakeAPI, tenant: Tenant) -> None:
    """virt-controller may not delete it, so it would block a start or end forever."""
    shapeless = tenant.forged("virt-launcher-squatter", uid=KNOWN)
    del shapeless["spec"]["containers"][0]["volumeMounts"]
    await api.put(PODS, shapeless)
    vm = a_vm()
    vm["metadata"]["uid"] = KNOWN
    await api.put(VMS, vm)
    own = await tenant.pod()
    await tenant.start_pod(own)
    await tenant.phase_is("Scheduled")
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    await tenant.until(lambda: dig(api.get(PODS, "ns", name_of(own)), "metadata", "deletionTimestamp"), "deletion of the pod")
    await tenant.end_pod(own)
    await tenant.until(lambda: api.all(VMS) == [], "the end of the machine")
    assert not [path for method, path, _ in api.writes if method == "DELETE" and "squatter" in path]


async def test_a_pod_in_the_way_that_may_not_be_deleted_is_said(api: FakeAPI, tenant: Tenant) -> None:
    own = await tenant.running()
    forged = await api.put(PODS, tenant.forged(PROTECTED))
    await tenant.end_pod(own)
    await tenant.until(lambda: "FailedDelete" in tenant.events(), "an event")
    said = next(each for each in api.all(EVENTS) if each["reason"] == "FailedDelete")
    assert "pod virt-launcher-protected blocks this virtual machine" in said["message"]
    await tenant.nothing_happens(tenant.vm(), [forged, own])


async def test_pod_of_an_interrupted_start_is_used_if_unchanged(api: FakeAPI, tenant: Tenant) -> None:
    await api.put(VMS, a_vm())
    made = await tenant.pod()
    await tenant.phase_is("Scheduling")
    await api.edit(VMS, "ns", "testvm", lambda obj: obj.pop("status"))
    await tenant.until(lambda: tenant.vm().get("status", {}).get("podUID"), "the uid")
    assert tenant.vm()["status"]["podUID"] == uid_of(made)
    assert tenant.pods() == [made]

    def other_memory(obj: Pod) -> None:
        obj.pop("status")
        obj["spec"]["domain"]["memory"]["guest"] = "96Mi"

    await api.edit(VMS, "ns", "testvm", other_memory)
    other = await tenant.until(lambda: [each for each in tenant.pods() if uid_of(each) != uid_of(made)], "another pod")
    await tenant.until(lambda: tenant.vm().get("status", {}).get("podUID") == uid_of(other[0]), "its uid")


@pytest.mark.parametrize("fields", [("labels",), ("ownerReferences",), ("labels", "annotations", "ownerReferences")])
async def test_a_running_pod_without_its_marks_is_still_the_machines(api: FakeAPI, tenant: Tenant, fields: tuple[str, ...]) -> None:
    own = await tenant.running()
    await tenant.strip(own, *fields)
    await tenant.nothing_happens(tenant.vm(), [own])
    await tenant.until(lambda: "PodNotMarked" in tenant.events(), "an event")
    assert tenant.events().count("PodNotMarked") == 1
    (told,) = [each["message"] for each in api.all(EVENTS) if each["reason"] == "PodNotMarked"]
    assert ("kubectl label pod" in told) == ("labels" in fields)
    assert ("restart" in told) == ("ownerReferences" in fields)
    lists = [query for method, path, query in api.requests if method == "GET" and path.endswith("/ns/pods") and "watch" not in query]
    assert bool(lists) == ("labels" in fields)
    assert {query["limit"] for query in lists} <= {"2"}

    await api.edit(
        VMS, "ns", "testvm", lambda obj: obj["status"].update(request={"action": "Restart", "runStrategy": "RerunOnFailure", "attempt": 2})
    )
    await tenant.until(lambda: dig(api.get(PODS, "ns", name_of(own)), "metadata", "deletionTimestamp"), "deletion of the pod")
    await asyncio.sleep(ENOUGH)
    assert [uid_of(each) for each in tenant.pods()] == [uid_of(own)]
    await tenant.end_pod(own)
    await tenant.pod(2)


@pytest.mark.parametrize("fields", [("labels",), ("ownerReferences",), ("labels", "annotations", "ownerReferences")])
async def test_a_machine_does_not_go_before_its_unmarked_pod(api: FakeAPI, tenant: Tenant, fields: tuple[str, ...]) -> None:
    own = await tenant.running()
    await tenant.strip(own, *fields)
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    await tenant.until(lambda: dig(api.get(PODS, "ns", name_of(own)), "metadata", "deletionTimestamp"), "deletion of the pod")
    await asyncio.sleep(ENOUGH)
    assert tenant.vm()["metadata"]["finalizers"] == [names.VM_FINALIZER]
    await tenant.end_pod(own)
    await tenant.until(lambda: api.all(VMS) == [], "the end of the machine")


async def test_marks_that_are_given_to_another_machine_move_nothing(api: FakeAPI, tenant: Tenant) -> None:
    own = await tenant.running()
    other = await api.put(VMS, a_vm("othervm", runStrategy="Halted"))

    def give(obj: Pod) -> None:
        obj["metadata"]["ownerReferences"][0] |= {"name": "othervm", "uid": uid_of(other)}
        obj["metadata"]["labels"] |= {names.VM_NAME_LABEL: "othervm", names.CREATED_BY_LABEL: uid_of(other)}

    await api.edit(PODS, "ns", name_of(own), give)
    await tenant.until(
        lambda: dig(api.get(PODS, "ns", name_of(own)), "metadata", "deletionTimestamp"), "the halted machine ends what it owns"
    )
    await asyncio.sleep(ENOUGH)
    assert tenant.phase() == "Running"
    assert [uid_of(each) for each in tenant.pods()] == [uid_of(own)]


async def test_pod_losing_its_labels_before_it_runs_is_handed_over(api: FakeAPI, tenant: Tenant) -> None:
    await api.put(VMS, a_vm())
    own = await tenant.pod()
    await tenant.phase_is("Scheduling")
    await tenant.strip(own, "labels", "ownerReferences")
    await tenant.start_pod(own)
    await tenant.phase_is("Scheduled")
    assert tenant.vm()["status"]["podUID"] == uid_of(own)
    assert len(tenant.pods()) == 1


async def test_pod_recreated_before_it_ran_gets_no_guest(api: FakeAPI, tenant: Tenant) -> None:
    await api.put(VMS, a_vm())
    own = await tenant.pod()
    await tenant.phase_is("Scheduling")
    await api.remove(PODS, "ns", name_of(own))
    forged = await api.put(PODS, tenant.forged(name_of(own)))
    await tenant.until(lambda: dig(api.get(PODS, "ns", name_of(own)), "metadata", "deletionTimestamp") or False, "deletion")
    assert tenant.vm()["status"]["podUID"] == uid_of(own)
    assert tenant.phase() == "Scheduling"
    await api.remove(PODS, "ns", name_of(forged))
    second = await tenant.pod(2)
    assert tenant.vm()["status"]["attempts"][0]["result"] == "Failed"
    assert second["spec"]["containers"][0]["image"] == "launcher:test"


async def test_pod_recreated_while_the_guest_ran_waits_for_the_old(api: FakeAPI, tenant: Tenant) -> None:
    own = await tenant.running()
    await api.remove(PODS, "ns", name_of(own))
    bare = tenant.forged(name_of(own))
    del bare["metadata"]["ownerReferences"]
    bare = await api.put(PODS, bare)
    await asyncio.sleep(ENOUGH)
    assert tenant.phase() == "Running"
    assert tenant.vm()["status"]["podUID"] == uid_of(own)
    assert [uid_of(each) for each in tenant.pods()] == [uid_of(bare)]


async def test_forcibly_deleted_pod_keeps_its_grace_period(api: FakeAPI, tenant: Tenant) -> None:
    own = await tenant.running()
    grace = own["spec"]["terminationGracePeriodSeconds"]
    await api.remove(PODS, "ns", name_of(own))
    await tenant.nothing_happens(tenant.vm(), [])
    tenant.now += lingering_seconds(grace) - 1
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["metadata"].update(labels={"look": "again"}))
    await tenant.nothing_happens(tenant.vm(), [])
    tenant.now += 1
    await tenant.pod(2)


async def test_virt_handler_ends_the_wait_and_a_dead_node_needs_none(api: FakeAPI, tenant: Tenant) -> None:
    own = await tenant.running()
    await api.remove(PODS, "ns", name_of(own))
    await tenant.nothing_happens(tenant.vm(), [])

    def ended(obj: Pod) -> None:
        obj["status"]["phase"] = "Stopped"
        obj["status"]["attempts"][0] |= {"endTime": "2026-01-01T00:20:00Z", "result": "Stopped"}

    await api.edit(VMS, "ns", "testvm", ended)
    second = await tenant.pod(2)
    await tenant.start_pod(second)
    await tenant.phase_is("Scheduled")
    await api.edit(NODES, "", "node1", lambda obj: obj["status"]["conditions"][0].update(status="Unknown"))
    await tenant.phase_is("Unknown")
    await api.remove(PODS, "ns", name_of(second))
    await tenant.pod(3)


async def test_forced_deletion_waits_for_a_silent_kubelet(api: FakeAPI, tenant: Tenant) -> None:
    """The grace period counts from the kubelet's return, however late."""
    looks = itertools.count()

    async def nothing_happens_in(seconds: float) -> None:
        tenant.now += seconds
        await look()
        await tenant.nothing_happens(tenant.vm(), [])

    async def look() -> None:
        await api.edit(VMS, "ns", "testvm", lambda obj: obj["metadata"].update(labels={"look": str(next(looks))}))

    async def kubelet_is(status: str) -> None:
        await api.edit(NODES, "", "node1", lambda obj: obj["status"]["conditions"][0].update(status=status))

    own = await tenant.running()
    await api.edit(PODS, "ns", name_of(own), lambda obj: obj["spec"].update(terminationGracePeriodSeconds=30))
    place = names.node_lease_namespace("kubevirt")
    lease = {"metadata": {"name": names.handler_lease("node1"), "namespace": place, "labels": {names.COMPONENT_LABEL: names.HANDLER}}}
    await api.put(LEASES, lease | {"spec": {"renewTime": "1990-01-01T00:00:00.000000Z", "leaseDurationSeconds": 120}})
    await asyncio.sleep(0.1)
    await kubelet_is("Unknown")
    await api.remove(PODS, "ns", name_of(own))
    await nothing_happens_in(0)
    await nothing_happens_in(lingering_seconds(30))
    await kubelet_is("True")
    await nothing_happens_in(0)
    await nothing_happens_in(lingering_seconds(30) - 1)
    tenant.now += 1
    await look()
    await tenant.pod(2)


async def migrating(api: FakeAPI, tenant: Tenant) -> tuple[Pod, Pod]:
    source = await tenant.running()
    made = await api.put(
        MIGRATIONS,
        {"metadata": {"name": "m", "namespace": "ns", "finalizers": [names.MIGRATION_FINALIZER]}, "spec": {"selector": {"name": "testvm"}}},
    )
    name = names.target_pod_name("testvm", uid_of(made))
    target = await tenant.until(lambda: api.get(PODS, "ns", name), "target pod")
    await tenant.start_pod(target, "node2")
    await tenant.until(lambda: move(api)["phase"] == "PreparingTarget", "PreparingTarget")
    await api.edit(MIGRATIONS, "ns", "m", lambda obj: obj["status"].update(phase="Running"))
    return source, target


def move(api: FakeAPI) -> dict[str, Any]:
    status: dict[str, Any] = api.get(MIGRATIONS, "ns", "m").get("status") or {}
    return status


async def test_both_sides_of_a_migration_are_written_down_by_uid(api: FakeAPI, tenant: Tenant) -> None:
    source, target = await migrating(api, tenant)
    assert (move(api)["sourcePodUID"], move(api)["targetPodUID"]) == (uid_of(source), uid_of(target))


async def test_a_forged_target_is_never_migrated_into(api: FakeAPI, tenant: Tenant) -> None:
    await tenant.running()
    name = names.target_pod_name("testvm", KNOWN)
    forged = await api.put(PODS, tenant.forged(name))
    await api.put(MIGRATIONS, {"metadata": {"name": "m", "namespace": "ns", "uid": KNOWN}, "spec": {"selector": {"name": "testvm"}}})
    await tenant.until(lambda: move(api).get("phase") == "Pending", "Pending")
    assert "differs from the pod that virt-controller creates" in move(api)["message"]
    assert "targetPodUID" not in move(api)
    await tenant.until(lambda: dig(api.get(PODS, "ns", name), "metadata", "deletionTimestamp") or False, "deletion")
    await api.remove(PODS, "ns", name_of(forged))
    await tenant.until(lambda: move(api).get("targetPodUID"), "another target")
    assert api.get(PODS, "ns", name)["spec"]["containers"][0]["image"] == "launcher:test"


async def test_a_target_remade_under_its_name_fails_the_migration(api: FakeAPI, tenant: Tenant) -> None:
    await tenant.running()
    made = await api.put(MIGRATIONS, {"metadata": {"name": "m", "namespace": "ns"}, "spec": {"selector": {"name": "testvm"}}})
    name = names.target_pod_name("testvm", uid_of(made))
    await tenant.until(lambda: move(api).get("targetPodUID"), "target pod")
    await api.remove(PODS, "ns", name)
    await api.put(PODS, tenant.forged(name))
    await tenant.until(lambda: move(api).get("phase") == "Failed", "Failed")
    assert "targetNode" not in move(api)


async def test_last_message_of_a_recreated_source_releases_no_guest(api: FakeAPI, tenant: Tenant) -> None:
    source, target = await migrating(api, tenant)
    await api.remove(PODS, "ns", name_of(source))
    forged = tenant.forged(name_of(source))
    forged["status"] = {
        "phase": "Succeeded",
        "containerStatuses": [{"name": names.CONTAINER, "state": {"terminated": {"exitCode": 0, "message": "migrated: by nobody"}}}],
    }
    await api.put(PODS, forged)
    await tenant.until(lambda: move(api).get("conditions"), "that the guest is withheld")
    await asyncio.sleep(ENOUGH)
    assert not departure.is_released({"status": move(api)})
    assert uid_of(api.get(PODS, "ns", name_of(target))) == uid_of(target)


async def test_a_target_without_its_marks_keeps_the_attempt_open(api: FakeAPI, tenant: Tenant) -> None:
    """The guest moved, and no status says so yet: only the target's uid identifies it."""
    source, target = await migrating(api, tenant)
    await tenant.strip(target, "labels", "annotations", "ownerReferences")
    before = copy.deepcopy(tenant.vm())
    await tenant.end_pod(source, message="migrated: the guest continues in another pod")
    await tenant.nothing_happens(before, [target, source] if name_of(target) < name_of(source) else [source, target])
    assert departure.is_released({"status": move(api)})
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update(podName=name_of(target), podUID=uid_of(target), nodeName="node2"))
    await tenant.until(lambda: move(api)["phase"] == "Succeeded", "Succeeded")
    await asyncio.sleep(ENOUGH)
    assert tenant.phase() == "Running"
    assert uid_of(target) in {uid_of(each) for each in tenant.pods()}


async def test_pod_forged_as_an_ended_migrations_target_blocks_nothing(api: FakeAPI, tenant: Tenant) -> None:
    own = await tenant.running()
    over = {
        "metadata": {"name": "m", "namespace": "ns", "uid": KNOWN},
        "spec": {"selector": {"name": "testvm"}},
        "status": {"phase": "Failed"},
    }
    await api.put(MIGRATIONS, over)
    name = names.target_pod_name("testvm", KNOWN)
    await api.put(PODS, tenant.forged(name))
    await tenant.end_pod(own)
    await tenant.until(lambda: dig(api.get(PODS, "ns", name), "metadata", "deletionTimestamp"), "deletion")
    await api.remove(PODS, "ns", name)
    await tenant.phase_is("Succeeded")


async def look_again(api: FakeAPI) -> None:
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["metadata"].update(labels={"look": str(len(api.writes))}))


async def test_forcibly_deleted_target_keeps_its_grace_period(api: FakeAPI, tenant: Tenant) -> None:
    """The guest was released over the relay; the target's virt-handler has not written that yet."""
    source, target = await migrating(api, tenant)
    await tenant.end_pod(source, message="migrated: the guest continues in another pod")
    before = copy.deepcopy(tenant.vm())
    await api.remove(PODS, "ns", name_of(target))
    await tenant.nothing_happens(before, [source])
    ready = condition(tenant.vm()["status"]["conditions"], "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("Unknown", TARGET_MAY_RUN)
    assert TARGET_MAY_RUN in tenant.events()
    said = condition(move(api)["conditions"], "Succeeded")
    assert said is not None
    assert (move(api)["phase"], said["reason"]) == ("Running", TARGET_MAY_RUN)
    tenant.now += lingering_seconds(target["spec"]["terminationGracePeriodSeconds"]) - 1
    await look_again(api)
    await tenant.nothing_happens(before, [source])
    tenant.now += 1
    await look_again(api)
    await tenant.pod(2)
    await tenant.until(lambda: move(api)["phase"] == "Failed", "Failed")


@pytest.mark.parametrize("deleting", [False, True])
async def test_machine_waits_for_a_forcibly_deleted_target(api: FakeAPI, tenant: Tenant, *, deleting: bool) -> None:
    """The source's virt-handler wrote the guest's end while the target's QEMU still has its disks open."""
    source, target = await migrating(api, tenant)

    def end(obj: Pod) -> None:
        obj["status"]["phase"] = "Stopped"
        obj["status"]["attempts"][0] |= {"endTime": "2026-01-01T00:20:00Z", "result": "Stopped"}
        if deleting:
            obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:20:00Z"

    await api.remove(PODS, "ns", name_of(target))
    await api.edit(VMS, "ns", "testvm", end)
    await tenant.end_pod(source)
    await tenant.nothing_happens(tenant.vm(), [source])
    assert move(api)["phase"] == "Running"
    tenant.now += lingering_seconds(target["spec"]["terminationGracePeriodSeconds"])
    await look_again(api)
    if deleting:
        await tenant.until(lambda: api.all(VMS) == [], "the end of the machine")
    else:
        await tenant.pod(2)


async def test_next_attempt_waits_for_a_forcibly_deleted_target(api: FakeAPI, tenant: Tenant) -> None:
    source, target = await migrating(api, tenant)
    broke = {"number": 1, "reason": "ConnectionBroken", "message": "the guest stayed", "endTime": "2026-01-01T00:20:00Z"}
    await api.remove(PODS, "ns", name_of(target))
    await api.edit(MIGRATIONS, "ns", "m", lambda obj: obj["status"].update(attempts=[broke]))
    before = copy.deepcopy(tenant.vm())
    await tenant.nothing_happens(before, [source])
    assert (move(api)["phase"], move(api)["attempt"]) == ("Running", 1)
    tenant.now += lingering_seconds(target["spec"]["terminationGracePeriodSeconds"])
    await look_again(api)
    await tenant.until(lambda: move(api)["attempt"] == 2, "the next attempt")
    assert tenant.vm()["status"]["attempts"] == before["status"]["attempts"], "the guest runs on"
    assert not dig(api.get(PODS, "ns", name_of(source)), "metadata", "deletionTimestamp")


async def test_virt_handler_takes_over_in_a_forcibly_deleted_target(api: FakeAPI, tenant: Tenant) -> None:
    source, target = await migrating(api, tenant)
    await tenant.end_pod(source, message="migrated: the guest continues in another pod")
    await api.remove(PODS, "ns", name_of(target))
    await tenant.until(lambda: TARGET_MAY_RUN in tenant.events(), "that it is waited for")
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update(podName=name_of(target), podUID=uid_of(target), nodeName="node2"))
    await tenant.until(lambda: move(api)["phase"] == "Succeeded", "Succeeded")
    await asyncio.sleep(ENOUGH)
    assert (tenant.phase(), tenant.vm()["status"]["attempt"]) == ("Running", 1)
    tenant.now += lingering_seconds(target["spec"]["terminationGracePeriodSeconds"])
    await look_again(api)
    await tenant.pod(2)


OFF = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


@pytest.mark.parametrize("how", ["it ended", "its node is fenced"])
async def test_a_target_of_which_nothing_runs_is_not_waited_for(api: FakeAPI, tenant: Tenant, how: str) -> None:
    source, target = await migrating(api, tenant)
    if how == "it ended":
        await tenant.end_pod(target, 1, "crashed: QEMU")
    else:
        await api.edit(NODES, "", "node2", lambda obj: obj["status"]["conditions"][0].update(status="Unknown"))
        await api.edit(NODES, "", "node2", lambda obj: obj.setdefault("spec", {}).update(taints=[OFF]))
    await api.remove(PODS, "ns", name_of(target))
    await tenant.end_pod(source, message="migrated: the guest continues in another pod")
    await tenant.pod(2)
    assert TARGET_MAY_RUN not in tenant.events()


@pytest.mark.parametrize("fields", [(), ("labels", "annotations", "ownerReferences")])
async def test_released_target_is_awaited_like_a_named_one(api: FakeAPI, tenant: Tenant, fields: tuple[str, ...]) -> None:
    source, target = await migrating(api, tenant)
    if fields:
        await tenant.strip(target, *fields)

    def end(obj: Pod) -> None:
        obj["status"].update(phase="Failed", message="source pod ended: crashed")

    before = copy.deepcopy(tenant.vm())
    await api.edit(MIGRATIONS, "ns", "m", end)
    await tenant.until(lambda: not dig(api.get(MIGRATIONS, "ns", "m"), "metadata", "finalizers"), "that it is over")
    assert dig(api.get(PODS, "ns", name_of(target)), "metadata", "deletionTimestamp")
    await tenant.end_pod(source, 1, "crashed: virt-launcher")
    await asyncio.sleep(ENOUGH)
    assert {uid_of(each) for each in tenant.pods()} == {uid_of(source), uid_of(target)}, "it has its grace period"
    await api.remove(PODS, "ns", name_of(target))
    await look_again(api)
    await tenant.nothing_happens(before, [source])
    tenant.now += lingering_seconds(target["spec"]["terminationGracePeriodSeconds"])
    await look_again(api)
    await tenant.pod(2)


async def test_ended_target_of_a_migration_is_not_awaited(api: FakeAPI, tenant: Tenant) -> None:
    source, target = await migrating(api, tenant)
    await api.edit(MIGRATIONS, "ns", "m", lambda obj: obj["status"].update(phase="Failed"))
    await tenant.until(lambda: dig(api.get(PODS, "ns", name_of(target)), "metadata", "deletionTimestamp"), "deletion")
    await tenant.end_pod(target)
    await api.remove(PODS, "ns", name_of(target))
    await tenant.end_pod(source, 1, "crashed: virt-launcher")
    await tenant.pod(2)
    assert TARGET_MAY_RUN not in tenant.events()
