"""virt-controller over memory; the test plays scheduler, kubelet and virt-handler."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import condition, dig, name_of, uid_of
from apiserver.apis.virt.lifecycle import power, summary
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import attachments
from apiserver.client.rest import Client
from controller.manager import options, wiring
from controller.manager.metrics import Metrics
from controller.reconcilers.indexes import MAX_NAMESAKES
from controller.reconcilers.settings import Times
from controller.reconcilers.virtual_machines import image_removal
from controller.runtime.clock import SystemClock
from controller.runtime.recorder import Recorder
from tests.fakes import podrestricting, rbac
from tests.fakes.kubeapi import FakeAPI

VMS = "/apis/kubevirt.io/v1alpha1/virtualmachines"
MIGRATIONS = "/apis/kubevirt.io/v1alpha1/migrations"
PODS = "/api/v1/pods"
CLAIMS = "/api/v1/persistentvolumeclaims"
NODES = "/api/v1/nodes"
NETWORKS = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions"
EVENTS = "/api/v1/events"
LEASES = "/apis/coordination.k8s.io/v1/leases"
TIMES = Times()


def a_vm(name: str = "testvm", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "ns", "finalizers": [names.VM_FINALIZER]},
        "spec": {"runStrategy": "RerunOnFailure", "domain": {"memory": {"guest": "64Mi"}, "devices": {}}, **spec},
    }


def a_node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


@asynccontextmanager
async def working(api: FakeAPI, *flags: str, elapsed: Callable[[], float] = time.monotonic, times: Times = TIMES) -> AsyncIterator[None]:
    ports = ("--health-port=0", "--metrics-port=0", "--webhook-port=0")
    given = options.parse(["--launcher-image=launcher:test", *ports, "--namespace=kubevirt", *flags])
    given = dataclasses.replace(given, settings=dataclasses.replace(given.settings, times=times))
    for node in ("node1", "node2"):
        await api.put(NODES, a_node(node))
    api.authorize = rbac.authorizer("virt-controller")
    api.judge = podrestricting.judge(api)
    async with api.serving() as config, Client(config, user_agent="virt-controller") as client:
        clock = SystemClock()
        environment = wiring.Environment(client, Recorder(client, "virt-controller", clock), clock, given, Metrics(), "kubevirt", elapsed)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(wiring.run(environment))
            try:
                yield
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running
    assert api.forbidden == []


class Cluster:
    def __init__(self, api: FakeAPI) -> None:
        self.api = api

    async def until(self, claim: Callable[[], Any], what: str) -> Any:
        try:
            async with asyncio.timeout(30):
                while True:
                    with suppress(KeyError, IndexError):
                        if found := claim():
                            return found
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"{what} did not come; the machines are {[each.get('status') for each in self.api.all(VMS)]}") from None

    def vm(self, name: str = "testvm") -> dict[str, Any]:
        return self.api.get(VMS, "ns", name)

    def phase(self, name: str = "testvm") -> str:
        return dig(self.vm(name), "status", "phase") or ""

    async def phase_is(self, phase: str) -> None:
        await self.until(lambda: self.phase() == phase, f"phase {phase}")

    async def pod(self, attempt: int = 1, name: str = "testvm") -> dict[str, Any]:
        wanted = names.launcher_pod_name(name, self.vm(name)["metadata"]["uid"], attempt)
        found: dict[str, Any] = await self.until(lambda: self.api.get(PODS, "ns", wanted), f"pod of attempt {attempt}")
        return found

    async def start_pod(self, pod: dict[str, Any], node: str = "node1") -> None:
        def run(obj: dict[str, Any]) -> None:
            obj["spec"]["nodeName"] = node
            obj["status"] = {
                "phase": "Running",
                "podIP": "10.0.0.9",
                "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2099-01-01T00:00:00Z"}],
                "containerStatuses": [{"name": names.CONTAINER, "state": {"running": {}}}],
            }

        await self.api.edit(PODS, "ns", name_of(pod), run)

    async def end_pod(self, pod: dict[str, Any], code: int = 0, message: str = "shutdown: the guest powered off") -> None:
        def end(obj: dict[str, Any]) -> None:
            obj["status"]["phase"] = "Failed" if code else "Succeeded"
            terminated = {"exitCode": code, "message": message}
            obj["status"]["containerStatuses"] = [{"name": names.CONTAINER, "state": {"terminated": terminated}}]

        await self.api.edit(PODS, "ns", name_of(pod), end)

    async def report_running(self, name: str = "testvm", at: str = "2026-01-01T00:00:00Z") -> None:
        def run(obj: dict[str, Any]) -> None:
            obj["status"]["phase"] = "Running"
            obj["status"]["attempts"][-1]["runningTime"] = at

        await self.api.edit(VMS, "ns", name, run)

    async def running(self, **spec: Any) -> dict[str, Any]:
        await self.api.put(VMS, a_vm(**spec))
        pod = await self.pod()
        await self.start_pod(pod)
        await self.phase_is("Scheduled")
        await self.report_running()
        return pod

    def events(self) -> list[str]:
        return [each["reason"] for each in self.api.all(EVENTS)]


async def test_a_machine_gets_a_pod_and_a_node_with_two_writes(api: FakeAPI, cluster: Cluster) -> None:
    await cluster.running()
    status = cluster.vm()["status"]
    assert (status["nodeName"], status["podIP"], status["attempt"]) == ("node1", "10.0.0.9", 1)
    assert [each["phase"] for each in status["phaseTransitionTimestamps"]] == ["Scheduling", "Scheduled"]
    assert status["attempts"][0]["nodeName"] == "node1"
    assert len([path for _, path, _ in api.writes if "/virtualmachines/" in path]) == 2
    await cluster.until(lambda: cluster.events() == ["SuccessfulCreate", "Scheduled"], "events")


async def test_missing_claim_is_reported_and_the_machine_starts_later(api: FakeAPI, cluster: Cluster) -> None:
    disk = {"name": "disk0", "type": "PersistentVolumeClaim", "source": {"name": "myVolumeClaim"}}
    await api.put(VMS, a_vm(domain={"memory": {"guest": "64Mi"}, "devices": {"disks": [disk]}}))
    await cluster.phase_is("Pending")
    lacking = condition(cluster.vm()["status"]["conditions"], "DisksReady")
    assert lacking is not None
    assert (lacking["status"], lacking["reason"]) == ("False", "ClaimNotFound")
    assert "myvolumeclaim" in lacking["message"]
    assert api.all(PODS) == []
    await api.put(CLAIMS, {"metadata": {"name": "myvolumeclaim", "namespace": "ns"}, "spec": {"volumeMode": "Block"}})
    pod = await cluster.pod()
    assert pod["spec"]["containers"][0]["volumeDevices"] == [{"name": "disk-0", "devicePath": "/dev/kubevirt-disks/disk0"}]
    await cluster.phase_is("Scheduling")
    await cluster.until(lambda: "ClaimNotFound" in cluster.events(), "event")


@pytest.mark.parametrize("requeueing", [Times(networks=0.05)])
async def test_missing_network_is_reported_and_the_start_waits(api: FakeAPI, cluster: Cluster) -> None:
    cards = [{"name": "default"}, {"name": "lan", "network": "lan"}, {"name": "wan", "network": "default/wan"}]
    await api.put(NETWORKS, {"metadata": {"name": "wan", "namespace": "default"}})
    await api.put(VMS, a_vm(domain={"memory": {"guest": "64Mi"}, "devices": {"interfaces": cards}}))
    await cluster.phase_is("Pending")
    lacking = condition(cluster.vm()["status"]["conditions"], "NetworkReady")
    assert lacking is not None
    assert (lacking["status"], lacking["reason"]) == ("False", "NetworkNotFound")
    assert lacking["message"] == "NetworkAttachmentDefinition not found: ns/lan; the virtual machine starts when it exists"
    assert api.all(PODS) == []
    broken = {"metadata": {"name": "lan", "namespace": "ns"}, "spec": {"config": '{"type": "bridge"'}}
    await api.put(NETWORKS, broken)
    await cluster.until(lambda: "NetworkNotUsable" in cluster.events(), "event")
    assert "ns/lan: spec.config is not valid JSON" in (condition(cluster.vm()["status"]["conditions"], "NetworkReady") or {})["message"]
    assert api.all(PODS) == []
    await api.put(NETWORKS, {**broken, "spec": {"config": '{"type": "bridge"}'}})
    pod = await cluster.pod()
    asked = json.loads(pod["metadata"]["annotations"][attachments.ANNOTATION])
    assert [(each["namespace"], each["name"]) for each in asked] == [("ns", "lan"), ("default", "wan")]
    await cluster.phase_is("Scheduling")
    assert condition(cluster.vm()["status"]["conditions"], "NetworkReady") is None

    def bind(obj: dict[str, Any]) -> None:
        obj["spec"]["nodeName"] = "node1"
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        obj["status"] = {"phase": "Pending", "conditions": [bound]}

    said = {
        "metadata": {"name": "of-the-kubelet", "namespace": "ns"},
        "involvedObject": {"uid": uid_of(pod)},
        "reason": "FailedCreatePodSandBox",
        "message": 'Failed to create pod sandbox: error adding container to network "lan": failed to find plugin "bridge"',
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    of_nobody = {"metadata": {"name": "of-somebody", "namespace": "ns"}, "message": "pay here", "lastTimestamp": "9999-01-01T00:00:00Z"}
    await api.put(EVENTS, said)
    await api.put(EVENTS, {**said, **of_nobody})
    await api.put(EVENTS, {**said, **of_nobody, "metadata": {"name": "of-volumes", "namespace": "ns"}, "reason": "FailedMount"})
    await api.edit(PODS, "ns", name_of(pod), bind)
    refused = await cluster.until(lambda: condition(cluster.vm()["status"]["conditions"], "NetworkReady"), "NetworkReady=False")
    assert (refused["reason"], refused["status"]) == ("NetworkNotUsable", "False")
    wording = 'according to the pod\'s events, node node1 cannot connect the pod to network ns/lan: failed to find plugin "bridge"'
    assert refused["message"].startswith(wording)
    await cluster.start_pod(pod)
    await cluster.phase_is("Scheduled")
    await cluster.until(lambda: "NetworkNotFound" in cluster.events(), "event")


async def test_a_guest_that_powers_off_by_itself_is_not_started_again(api: FakeAPI, cluster: Cluster) -> None:
    pod = await cluster.running()
    await cluster.end_pod(pod)
    await cluster.phase_is("Succeeded")
    assert cluster.vm()["status"]["attempts"][-1]["result"] == "Succeeded"
    await cluster.until(lambda: api.all(PODS) == [], "clean-up")


async def test_a_failed_start_is_repeated_away_from_its_node(api: FakeAPI, cluster: Cluster) -> None:
    await api.put(VMS, a_vm(rerun={"limit": 1}))
    first = await cluster.pod(1)
    await cluster.start_pod(first)
    await cluster.phase_is("Scheduled")
    await cluster.end_pod(first, 1, "start-failed: no such machine type")
    second = await cluster.pod(2)
    avoid = second["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]["preference"]
    assert avoid["matchFields"][0]["values"] == ["node1"]
    await cluster.start_pod(second, "node2")
    await cluster.phase_is("Scheduled")
    await cluster.end_pod(second, 1, "start-failed: again")
    await cluster.phase_is("Failed")
    await asyncio.sleep(0.2)
    assert len(cluster.vm()["status"]["attempts"]) == 2
    assert "no such machine type" in cluster.vm()["status"]["attempts"][0]["message"]


async def test_no_second_pod_is_made_while_the_first_may_still_run(api: FakeAPI, cluster: Cluster) -> None:
    pod = await cluster.running()
    await api.edit(
        PODS,
        "ns",
        name_of(pod),
        lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=45),
    )
    await api.edit(NODES, "", "node1", lambda obj: obj["status"]["conditions"][0].update(status="Unknown"))
    await cluster.phase_is("Unknown")
    ready = condition(cluster.vm()["status"]["conditions"], "Ready")
    assert ready is not None
    assert "kubectl virt fence node1 --off" in ready["message"]
    await api.edit(
        VMS, "ns", "testvm", lambda obj: obj["status"].update(request={"action": "Restart", "runStrategy": "RerunOnFailure", "attempt": 2})
    )
    await asyncio.sleep(0.2)
    assert [name_of(each) for each in api.all(PODS)] == [name_of(pod)]
    await api.remove(PODS, "ns", name_of(pod))
    await cluster.pod(2)


async def test_stop_deletes_the_pod_and_start_makes_the_next(api: FakeAPI, cluster: Cluster) -> None:
    pod = await cluster.running()
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update(request={"action": "Stop", "runStrategy": "RerunOnFailure"}))
    await cluster.until(lambda: api.get(PODS, "ns", name_of(pod))["metadata"].get("deletionTimestamp"), "deletion of the pod")
    await cluster.end_pod(pod)
    await cluster.phase_is("Stopped")
    await api.remove(PODS, "ns", name_of(pod))
    assert cluster.vm()["status"]["attempts"][-1]["result"] == "Stopped"
    await api.edit(
        VMS, "ns", "testvm", lambda obj: obj["status"].update(request={"action": "Start", "runStrategy": "RerunOnFailure", "attempt": 2})
    )
    await cluster.pod(2)


@pytest.mark.parametrize("strategy", ["Once", "Manual"])
@pytest.mark.parametrize(
    ("cause", "goes_on"),
    [("EvictionByEvictionAPI", True), ("PreemptionByScheduler", True), ("DeletionByTaintManager", True), ("", False)],
    ids=["eviction", "preemption", "taint", "by hand"],
)
async def test_single_run_machine_is_rerun_if_its_pod_was_evicted(
    api: FakeAPI, cluster: Cluster, strategy: str, cause: str, *, goes_on: bool
) -> None:
    await api.put(VMS, a_vm(runStrategy=strategy))
    if strategy == "Manual":
        started = {"action": "Start", "attempt": 1, "runStrategy": strategy}
        await api.edit(VMS, "ns", "testvm", lambda obj: obj.setdefault("status", {}).update(request=started))
    pod = await cluster.pod()
    await cluster.start_pod(pod)
    await cluster.phase_is("Scheduled")
    await cluster.report_running()
    if cause:
        told = {"type": "DisruptionTarget", "status": "True", "reason": cause, "message": "so"}
        await api.edit(PODS, "ns", name_of(pod), lambda obj: obj["status"]["conditions"].append(told))
        await cluster.until(lambda: cause in cluster.events(), "Event")
    await cluster.end_pod(pod, message="shutdown-requested: the guest shut down on request")
    if goes_on:
        await cluster.pod(2)
    await cluster.until(lambda: cluster.vm()["status"]["attempts"][0].get("result") == "Stopped", "end of the first attempt")
    if not goes_on:
        await cluster.until(
            lambda: condition(cluster.vm()["status"]["conditions"], "Ready") is None, "rest: Once and Manual ask for no further guest"
        )
        assert power.decide(cluster.vm()).on is False


async def test_stop_before_the_guest_is_quick_and_no_failure(api: FakeAPI, cluster: Cluster) -> None:
    await api.put(VMS, a_vm(runStrategy="Always"))
    pod = await cluster.pod()

    def bind(obj: dict[str, Any]) -> None:
        obj["spec"]["nodeName"] = "node1"
        obj["status"] = {"phase": "Pending"}

    await cluster.phase_is("Scheduling")
    await api.edit(PODS, "ns", name_of(pod), bind)
    await api.edit(VMS, "ns", "testvm", lambda vm: vm["spec"].update(runStrategy="Halted"))
    await cluster.until(lambda: cluster.api.get(PODS, "ns", name_of(pod))["metadata"].get("deletionTimestamp"), "the deletion")
    await api.edit(VMS, "ns", "testvm", lambda vm: vm["spec"].update(runStrategy="Always"))
    assert [
        options.get("gracePeriodSeconds") for verb, path, options in api.writes if (verb, path.startswith(PODS)) == ("DELETE", True)
    ] == [1]
    await cluster.end_pod(pod, code=137, message="")
    await api.remove(PODS, "ns", name_of(pod))
    await cluster.pod(2)
    await cluster.until(lambda: len(cluster.vm()["status"]["attempts"]) == 2, "the record of attempt 2")
    assert [each.get("result") for each in cluster.vm()["status"]["attempts"]] == ["Stopped", None]


async def test_a_deleted_machine_goes_when_its_pod_is_gone(api: FakeAPI, cluster: Cluster) -> None:
    pod = await cluster.running()
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    await cluster.until(lambda: api.get(PODS, "ns", name_of(pod))["metadata"].get("deletionTimestamp"), "deletion of the pod")
    assert cluster.vm()["metadata"]["finalizers"] == [names.VM_FINALIZER]
    await cluster.end_pod(pod)
    await cluster.until(lambda: api.all(VMS) == [], "the end of the machine")


async def test_hanging_image_removal_keeps_no_deleted_machine(api: FakeAPI, cluster: Cluster) -> None:
    await api.put(CLAIMS, {"metadata": {"name": "memory", "namespace": "ns"}, "spec": {"accessModes": ["ReadWriteMany"]}})
    pod = await cluster.running(managedSave={"claimName": "memory"})
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    await cluster.until(lambda: api.get(PODS, "ns", name_of(pod))["metadata"].get("deletionTimestamp"), "deletion of the pod")
    removal = names.removal_pod_name("testvm", uid_of(cluster.vm()))
    await cluster.end_pod(pod)
    # FakeAPI dates pods long before image_removal.LIMIT_SECONDS.
    await cluster.until(lambda: api.all(VMS) == [], "the end of the machine")
    await cluster.until(lambda: image_removal.KEPT in cluster.events(), "the Event")
    assert any(f"pod {removal} did not end within 300 s" in each["message"] for each in api.all(EVENTS))


async def test_machine_without_its_finalizer_outlives_its_pod(api: FakeAPI, cluster: Cluster) -> None:
    pod = await cluster.running()
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["metadata"].pop("finalizers"))
    await cluster.until(lambda: cluster.vm()["metadata"].get("finalizers") == [names.VM_FINALIZER], "the finalizer")
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    await cluster.until(lambda: api.get(PODS, "ns", name_of(pod))["metadata"].get("deletionTimestamp"), "deletion of the pod")
    assert cluster.vm()["metadata"]["finalizers"] == [names.VM_FINALIZER]
    await cluster.end_pod(pod)
    await cluster.until(lambda: api.all(VMS) == [], "the end of the machine")


async def test_a_machine_deleted_while_its_pod_is_made_leaves_no_pod(api: FakeAPI, cluster: Cluster) -> None:
    for number in range(5):
        await api.put(VMS, a_vm(f"vm{number}"))
        await asyncio.sleep(number / 500)
        await api.edit(VMS, "ns", f"vm{number}", lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    await cluster.until(lambda: api.all(VMS) == [], "the end of the machines")
    await cluster.until(lambda: api.all(PODS) == [], "the end of the pods")


async def test_duplicate_mac_is_reported_and_the_machine_starts(api: FakeAPI, cluster: Cluster) -> None:
    def with_mac(name: str, mac: str, namespace: str = "ns") -> dict[str, Any]:
        domain = {"memory": {"guest": "64Mi"}, "devices": {"interfaces": [{"name": "default", "mac": mac}]}}
        vm = a_vm(name, domain=domain)
        vm["metadata"]["namespace"] = namespace
        return vm

    await api.put(VMS, with_mac("elsewhere", "52:54:00:c0:ff:ee", "another"))
    await api.put(
        VMS,
        with_mac("halted", "52:54:00:c0:ff:ee") | {"spec": {**with_mac("halted", "52:54:00:c0:ff:ee")["spec"], "runStrategy": "Halted"}},
    )
    await api.put(VMS, with_mac("first", "52:54:00:C0:FF:EE"))
    await cluster.pod(name="first")
    await cluster.until(lambda: cluster.phase("first") == "Scheduling", "the first start")
    assert "DuplicateMAC" not in cluster.events()
    await api.put(VMS, with_mac("second", "52-54-00-c0-ff-ee"))
    await cluster.pod(name="second")
    await cluster.until(lambda: "DuplicateMAC" in cluster.events(), "an event")
    (told,) = [each for each in api.all(EVENTS) if each["reason"] == "DuplicateMAC"]
    assert told["involvedObject"]["name"] == "second"
    assert "is also used by first:" in told["message"]


async def test_duplicate_mac_of_a_card_for_a_running_guest_is_reported(api: FakeAPI, cluster: Cluster) -> None:
    def give(vm: dict[str, Any]) -> None:
        vm["status"]["domain"] = {"liveChanges": ["interface"]}
        vm["spec"]["domain"]["devices"] = {
            "interfaces": [{"name": "default"}, {"name": "lan", "network": "lan", "mac": "52:54:00:c0:ff:ee"}]
        }

    devices = {"interfaces": [{"name": "default", "mac": "52:54:00:c0:ff:ee"}]}
    for name, domain in [("first", {"memory": {"guest": "64Mi"}, "devices": devices}), ("second", {"memory": {"guest": "64Mi"}})]:
        await api.put(VMS, a_vm(name, domain=domain))
        await cluster.pod(name=name)
        await cluster.until(lambda name=name: cluster.phase(name) == "Scheduling", "the start")  # type: ignore[misc]  # a default binds the name
    assert "DuplicateMAC" not in cluster.events()
    await api.edit(VMS, "ns", "second", give)
    await cluster.until(lambda: "DuplicateMAC" in cluster.events(), "an event")
    (told,) = [each for each in api.all(EVENTS) if each["reason"] == "DuplicateMAC"]
    assert (told["involvedObject"]["name"], "is also used by first:" in told["message"]) == ("second", True)


async def test_second_machine_with_a_claim_waits_for_the_first(api: FakeAPI, cluster: Cluster) -> None:
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
    domain = {"memory": {"guest": "64Mi"}, "devices": {"disks": [disk]}}
    await api.put(CLAIMS, {"metadata": {"name": "data", "namespace": "ns"}, "spec": {"accessModes": ["ReadWriteMany"]}})
    await api.put(VMS, a_vm("first", domain=domain))
    pod = await cluster.pod(name="first")
    await cluster.start_pod(pod)
    await cluster.until(lambda: cluster.phase("first") == "Scheduled", "the first start")
    await api.put(VMS, a_vm("second", domain=domain))
    await cluster.until(lambda: "DiskInUse" in cluster.events(), "an event")
    found = condition(cluster.vm("second")["status"]["conditions"], "DisksReady")
    assert found is not None
    assert "data by virtual machine first" in found["message"]
    assert len(api.all(PODS)) == 1
    await cluster.end_pod(pod)
    await cluster.until(lambda: cluster.phase("second") == "Scheduling", "the second start")


async def test_machines_that_are_off_do_not_hide_who_holds_a_claim(api: FakeAPI, cluster: Cluster) -> None:
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
    domain = {"memory": {"guest": "64Mi"}, "devices": {"disks": [disk]}}
    await api.put(CLAIMS, {"metadata": {"name": "data", "namespace": "ns"}, "spec": {"accessModes": ["ReadWriteMany"]}})
    for number in range(MAX_NAMESAKES):
        await api.put(VMS, a_vm(f"earlier-{number}", domain=domain, runStrategy="Halted"))
    await api.put(VMS, a_vm("first", domain=domain))
    await cluster.start_pod(await cluster.pod(name="first"))
    await cluster.until(lambda: cluster.phase("first") == "Scheduled", "the first start")
    await api.put(VMS, a_vm("second", domain=domain))
    await cluster.until(lambda: cluster.phase("second"), "what becomes of the second machine")
    found = condition(cluster.vm("second")["status"]["conditions"], "DisksReady") or {}
    assert (cluster.phase("second"), found["reason"]) == ("Pending", "DiskInUse")
    assert "data by virtual machine first" in found["message"]


async def test_crashed_machine_keeps_its_disk_from_a_waiting_one(api: FakeAPI, cluster: Cluster) -> None:
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
    domain = {"memory": {"guest": "64Mi"}, "devices": {"disks": [disk]}}
    await api.put(CLAIMS, {"metadata": {"name": "data", "namespace": "ns"}, "spec": {"accessModes": ["ReadWriteMany"]}})
    await api.put(VMS, a_vm("first", domain=domain))
    await api.put(VMS, a_vm("second", domain=domain, runStrategy="Manual"))
    for attempt in (1, 2):
        pod = await cluster.pod(attempt, name="first")
        await cluster.start_pod(pod)
        await cluster.until(lambda: cluster.phase("first") == "Scheduled", "the guest")
        await cluster.report_running("first", times.to_rfc3339(datetime.now(UTC)))
        if attempt == 2:
            await api.edit(VMS, "ns", "second", lambda obj: obj["spec"].update(runStrategy="Always"))
            await cluster.until(lambda: cluster.phase("second") == "Pending", "the one that waits")
        await cluster.end_pod(pod, 1, "crashed: QEMU")
    await cluster.until(lambda: "CrashLoopBackOff" in cluster.events(), "the pause")
    await api.edit(VMS, "ns", "second", lambda obj: obj["metadata"].update(labels={"look": "again"}))
    await cluster.until(lambda: cluster.vm("second")["metadata"].get("labels"), "a look")
    await asyncio.sleep(0.2)
    assert (cluster.phase("second"), "attempts" in cluster.vm("second")["status"]) == ("Pending", False)
    await api.edit(VMS, "ns", "first", lambda obj: obj["spec"].update(runStrategy="Halted"))
    await cluster.until(lambda: cluster.phase("second") == "Scheduling", "the start of the one that waited")


async def test_changed_disk_is_released_to_a_waiting_machine(api: FakeAPI, cluster: Cluster) -> None:
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
    domain = {"memory": {"guest": "64Mi"}, "devices": {"disks": [disk]}}
    for claim in ("data", "other"):
        await api.put(CLAIMS, {"metadata": {"name": claim, "namespace": "ns"}, "spec": {"accessModes": ["ReadWriteMany"]}})
    await api.put(VMS, a_vm("first", domain=domain))
    await cluster.until(lambda: cluster.phase("first") == "Scheduling", "the first start")
    await api.put(VMS, a_vm("second", domain=domain))
    await cluster.until(lambda: cluster.phase("second") == "Pending", "the one that waits")
    other = {**disk, "source": {"name": "other"}}
    await api.edit(VMS, "ns", "first", lambda obj: obj["spec"]["domain"]["devices"].update(disks=[other]))
    await cluster.until(lambda: cluster.phase("second") == "Scheduling", "the start of the one that waited")


async def test_second_machine_with_a_network_disk_waits_for_the_first(api: FakeAPI, cluster: Cluster) -> None:
    source = {"targetPortal": "iscsi.example", "iqn": "iqn.2026-01.example:a", "lun": 1}

    def with_disk(name: str, namespace: str = "ns", **said: Any) -> dict[str, Any]:
        disk = {"name": "root", "type": "ISCSI", "source": {**source, **said}}
        vm = a_vm(name, domain={"memory": {"guest": "64Mi"}, "devices": {"disks": [disk]}})
        vm["metadata"]["namespace"] = namespace
        return vm

    await api.put(VMS, with_disk("elsewhere", "another"))
    await api.put(VMS, with_disk("unit", lun=2))
    await api.put(VMS, with_disk("first"))
    pod = await cluster.pod(name="first")
    await cluster.start_pod(pod)
    await cluster.until(lambda: cluster.phase("first") == "Scheduled", "the first start")
    await cluster.pod(name="unit")
    await api.put(VMS, with_disk("second", targetPortal="192.0.2.1:3260"))
    await cluster.until(lambda: "DiskInUse" in cluster.events(), "an event")
    found = condition(cluster.vm("second")["status"]["conditions"], "DisksReady") or {}
    held = "disk of a server in use: LUN 1 of iqn.2026-01.example:a by virtual machine first"
    assert found["message"] == f"{held}; the virtual machine starts when that is no longer in use"
    assert cluster.phase("second") == "Pending"
    await cluster.end_pod(pod)
    await cluster.until(lambda: cluster.phase("second") == "Scheduling", "the second start")


async def test_foreign_host_file_does_not_hold_a_claim_of_equal_name(api: FakeAPI, cluster: Cluster) -> None:
    file = {"name": "file", "type": "HostDisk", "source": {"path": "/srv/vms/a.img"}, "readOnly": True}
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
    domain = {"memory": {"guest": "64Mi"}, "devices": {"disks": [file, disk]}}
    for namespace in ("another", "ns"):
        await api.put(CLAIMS, {"metadata": {"name": "data", "namespace": namespace}, "spec": {"accessModes": ["ReadWriteMany"]}})
    vm = a_vm("stranger", domain=domain)
    vm["metadata"]["namespace"] = "another"
    vm["status"] = {"phase": "Running", "nodeName": "node1", "attempt": 1}
    await api.put(VMS, vm)
    await api.put(VMS, a_vm("first", domain=domain))
    await cluster.pod(name="first")
    assert "DiskInUse" not in cluster.events()


async def with_file_and_claim(api: FakeAPI, namespace: str, name: str, *disks: str) -> None:
    known = {
        "file": {"name": "file", "type": "HostDisk", "source": {"path": "/srv/vms/a.img"}},
        "claim": {"name": "claim", "type": "PersistentVolumeClaim", "source": {"name": "data"}},
    }
    vm = a_vm(name, domain={"memory": {"guest": "64Mi"}, "devices": {"disks": [known[each] for each in disks]}})
    vm["metadata"]["namespace"] = namespace
    await api.put(VMS, vm)


async def test_foreign_machine_with_the_same_file_contests_no_claim(api: FakeAPI, cluster: Cluster) -> None:
    for namespace in ("ns", "elsewhere"):
        await api.put(CLAIMS, {"metadata": {"name": "data", "namespace": namespace}, "spec": {"accessModes": ["ReadWriteMany"]}})
    await with_file_and_claim(api, "elsewhere", "foreign", "file", "claim")
    await cluster.until(lambda: api.get(VMS, "elsewhere", "foreign")["status"]["podUID"], "the foreign machine's pod")
    await with_file_and_claim(api, "ns", "own", "file", "claim")
    await cluster.until(lambda: cluster.phase("own"), "what becomes of the own machine")
    assert cluster.phase("own") == "Scheduling"
    assert "foreign" not in json.dumps(cluster.vm("own"))


async def test_foreign_namesake_does_not_hide_a_rival(api: FakeAPI, cluster: Cluster) -> None:
    for namespace in ("ns", "elsewhere"):
        await api.put(CLAIMS, {"metadata": {"name": "data", "namespace": namespace}, "spec": {"accessModes": ["ReadWriteMany"]}})
    await with_file_and_claim(api, "elsewhere", "first", "file")
    await with_file_and_claim(api, "ns", "first", "claim")
    await cluster.until(lambda: all(api.get(VMS, each, "first")["status"]["podUID"] for each in ("elsewhere", "ns")), "two pods")
    await with_file_and_claim(api, "ns", "second", "file", "claim")
    await cluster.until(lambda: cluster.phase("second"), "what becomes of the second machine")
    found = condition(cluster.vm("second")["status"]["conditions"], "DisksReady") or {}
    assert (found["reason"], cluster.phase("second")) == ("DiskInUse", "Pending")
    assert "data by virtual machine first" in found["message"]


async def test_machine_with_the_guest_precedes_another_with_a_pod(api: FakeAPI, cluster: Cluster) -> None:
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
    other = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "other"}}
    for claim in ("data", "other"):
        await api.put(CLAIMS, {"metadata": {"name": claim, "namespace": "ns"}, "spec": {"accessModes": ["ReadWriteMany"]}})
    await api.put(VMS, a_vm("first", domain={"memory": {"guest": "64Mi"}, "devices": {"disks": [other]}}))
    await api.put(VMS, a_vm("second", domain={"memory": {"guest": "64Mi"}, "devices": {"disks": [disk]}}))
    pods = [await cluster.pod(name=name) for name in ("first", "second")]
    await cluster.until(lambda: {cluster.phase("first"), cluster.phase("second")} == {"Scheduling"}, "both starts")

    def as_if_it_had_been_so(obj: dict[str, Any]) -> None:
        obj["spec"]["domain"]["devices"]["disks"] = [disk]
        obj["status"]["attempts"][-1]["generation"] = obj["metadata"]["generation"] + 1

    await api.edit(VMS, "ns", "first", as_if_it_had_been_so)
    await cluster.start_pod(pods[0])
    await cluster.until(lambda: cluster.phase("first") == "Scheduled", "the first guest")
    await cluster.start_pod(pods[1])
    await cluster.until(lambda: "DiskInUse" in cluster.events(), "an event")
    assert cluster.phase("second") == "Scheduling"
    await cluster.end_pod(pods[0])
    await cluster.until(lambda: cluster.phase("second") == "Scheduled", "the second guest")


async def test_second_machine_with_a_host_file_waits_for_the_first(api: FakeAPI, cluster: Cluster) -> None:
    disk = {"name": "root", "type": "HostDisk", "source": {"path": "/srv/vms/a.img"}}
    domain = {"memory": {"guest": "64Mi"}, "devices": {"disks": [disk]}}
    pods = []
    for name in ("first", "second"):
        await api.put(VMS, a_vm(name, domain=domain))
        pods.append(await cluster.pod(name=name))
        await cluster.start_pod(pods[-1])
        if name == "first":
            await cluster.until(lambda: cluster.phase("first") == "Scheduled", "the first guest")
    await cluster.until(lambda: "DiskInUse" in cluster.events(), "an event")
    found = condition(cluster.vm("second")["status"]["conditions"], "DisksReady") or {}
    assert "file in use: /srv/vms/a.img of node node1 by virtual machine first; " in found["message"]
    assert cluster.phase("second") == "Scheduling"
    await cluster.end_pod(pods[0])
    await cluster.until(lambda: cluster.phase("second") == "Scheduled", "the second guest")


async def test_a_pod_that_is_refused_is_said_once(api: FakeAPI, cluster: Cluster) -> None:
    def refuse(collection: str, obj: dict[str, Any]) -> None:
        if collection == PODS:
            raise errors.Forbidden("exceeded quota: memory")

    api.admit = refuse
    await api.put(VMS, a_vm())
    await cluster.phase_is("Pending")
    ready = condition(cluster.vm()["status"]["conditions"], "Ready")
    assert ready is not None
    assert ready["reason"] == "FailedCreate"
    assert re.match(r"exceeded quota: memory; the pod requests \d+Mi of memory, 64Mi for the guest and", ready["message"])


async def test_refused_pod_is_not_repeated_at_once_in_other_words(api: FakeAPI, cluster: Cluster) -> None:
    """kube-apiserver names any one of several full quotas."""
    tried = itertools.count(1)

    def refuse(collection: str, obj: dict[str, Any]) -> None:
        if collection == PODS:
            raise errors.Forbidden(f"exceeded quota: {next(tried)}")

    api.admit = refuse
    await api.put(VMS, a_vm())
    await cluster.until(lambda: "FailedCreate" in cluster.events(), "an Event")
    await asyncio.sleep(0.5)
    assert cluster.events() == ["FailedCreate"]
    await api.edit(VMS, "ns", "testvm", lambda vm: vm["spec"]["domain"].update(memory={"guest": "32Mi"}))
    await cluster.until(lambda: cluster.events() == ["FailedCreate"] * 2, "another attempt after an edit")


async def test_modified_pod_is_not_handed_over_and_reported(api: FakeAPI, cluster: Cluster) -> None:
    """A webhook rewrote image references: virt-api refuses the assignment."""

    def rewrite(collection: str, obj: dict[str, Any]) -> None:
        if collection == PODS:
            next(each for each in obj["spec"]["volumes"] if "image" in each)["image"]["reference"] = "mirror.example/os:v1"

    api.admit = rewrite
    disk = {"type": "Image", "source": {"reference": "registry.example/os:v1"}}
    await api.put(VMS, a_vm(domain={"memory": {"guest": "64Mi"}, "devices": {"disks": [disk]}}))
    await cluster.phase_is("Pending")
    ready = condition(cluster.vm()["status"]["conditions"], "Ready")
    assert ready is not None
    assert ready["reason"] == "FailedCreate"
    assert "Image mirror.example/os:v1 as volume disk-0: the virtual machine does not name it" in ready["message"]
    assert "podUID" not in cluster.vm()["status"]


async def test_migration_creates_a_target_pod_and_deletes_the_source(api: FakeAPI, cluster: Cluster) -> None:
    source = await cluster.running()
    migration = {
        "metadata": {"name": "m", "namespace": "ns", "finalizers": [names.MIGRATION_FINALIZER]},
        "spec": {"selector": {"name": "testvm"}, "nodeSelector": {"kubevirt.io/hostname": "node2"}},
    }
    made = await api.put(MIGRATIONS, migration)
    name = names.target_pod_name("testvm", made["metadata"]["uid"])
    target = await cluster.until(lambda: api.get(PODS, "ns", name), "target pod")
    assert target["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "node2"}
    term = target["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["node1"]}]
    await cluster.start_pod(target, "node2")
    await cluster.until(lambda: api.get(MIGRATIONS, "ns", "m")["status"]["phase"] == "PreparingTarget", "PreparingTarget")
    assert api.get(MIGRATIONS, "ns", "m")["status"]["targetNode"] == "node2"
    await cluster.until(lambda: cluster.vm()["status"].get("migration", {}).get("phase") == "PreparingTarget", "record of it")
    assert summary.word(cluster.vm()) == "Migrating"
    assert cluster.phase() == "Running"
    await api.edit(MIGRATIONS, "ns", "m", lambda obj: obj["status"].update(phase="Running"))
    moved = {"podName": name, "podUID": uid_of(target), "nodeName": "node2"}
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update(moved))
    await cluster.until(lambda: api.get(MIGRATIONS, "ns", "m")["status"]["phase"] == "Succeeded", "Succeeded")
    await cluster.until(lambda: "finalizers" not in api.get(MIGRATIONS, "ns", "m")["metadata"], "removal of the finalizer")
    assert api.get(PODS, "ns", name_of(source))["metadata"]["deletionTimestamp"]
    assert "deletionTimestamp" not in api.get(PODS, "ns", name)["metadata"]
    await api.remove(PODS, "ns", name_of(source))
    await asyncio.sleep(0.1)
    assert cluster.phase() == "Running"
    await cluster.until(lambda: "Migrated" in cluster.events(), "event")

    asked = len(api.requests)
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        moved["podIP"] = address
        await api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update(moved))
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)
    of_the_process = ("/leases/", "/validatingwebhookconfigurations/")
    reads = [path for method, path, query in api.requests[asked:] if method == "GET" and not query]
    assert [path for path in reads if not any(part in path for part in of_the_process)] == []


async def test_kvm_target_requires_the_cpu_labels_of_the_source_node(api: FakeAPI, cluster: Cluster) -> None:
    def advertise(obj: dict[str, Any]) -> None:
        obj["status"]["allocatable"] = {names.KVM_RESOURCE: "100"}
        obj["metadata"]["labels"] = {"zone": "a", "cpu-feature.node.kubevirt.io/aes": "true"}

    await api.edit(NODES, "", "node1", advertise)
    await asyncio.sleep(0.1)
    await cluster.running()
    made = await api.put(MIGRATIONS, {"metadata": {"name": "m", "namespace": "ns"}, "spec": {"selector": {"name": "testvm"}}})
    await api.edit(MIGRATIONS, "ns", "m", lambda obj: obj["metadata"].update(finalizers=[names.MIGRATION_FINALIZER]))
    name = names.target_pod_name("testvm", made["metadata"]["uid"])
    target = await cluster.until(lambda: api.get(PODS, "ns", name), "target pod")
    assert target["spec"]["nodeSelector"] == {"cpu-feature.node.kubevirt.io/aes": "true"}


async def test_success_seen_before_the_move_keeps_the_guest(api: FakeAPI, cluster: Cluster) -> None:
    source = await cluster.running()
    made = await api.put(MIGRATIONS, {"metadata": {"name": "m", "namespace": "ns"}, "spec": {"selector": {"name": "testvm"}}})
    name = names.target_pod_name("testvm", made["metadata"]["uid"])
    await cluster.start_pod(await cluster.until(lambda: api.get(PODS, "ns", name), "target pod"), "node2")
    await cluster.until(lambda: api.get(MIGRATIONS, "ns", "m")["status"]["phase"] == "PreparingTarget", "PreparingTarget")
    await api.edit(MIGRATIONS, "ns", "m", lambda obj: obj["metadata"].update(finalizers=[names.MIGRATION_FINALIZER]))

    await api.edit(MIGRATIONS, "ns", "m", lambda obj: obj["status"].update(phase="Succeeded", endTime="2026-01-01T00:00:00Z"))
    await asyncio.sleep(0.3)
    assert "deletionTimestamp" not in api.get(PODS, "ns", name)["metadata"]
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update(podName=name, nodeName="node2"))

    await cluster.until(lambda: api.get(PODS, "ns", name_of(source))["metadata"].get("deletionTimestamp"), "deletion of the source")
    assert "deletionTimestamp" not in api.get(PODS, "ns", name)["metadata"]


async def test_move_seen_last_keeps_the_guest(api: FakeAPI, cluster: Cluster) -> None:
    source = await cluster.running()
    made = await api.put(MIGRATIONS, {"metadata": {"name": "m", "namespace": "ns"}, "spec": {"selector": {"name": "testvm"}}})
    name = names.target_pod_name("testvm", made["metadata"]["uid"])
    target = await cluster.until(lambda: api.get(PODS, "ns", name), "target pod")
    await cluster.start_pod(target, "node2")
    await cluster.until(lambda: api.get(MIGRATIONS, "ns", "m")["status"]["phase"] == "PreparingTarget", "PreparingTarget")
    await api.edit(MIGRATIONS, "ns", "m", lambda obj: obj["metadata"].update(finalizers=[names.MIGRATION_FINALIZER]))

    api.drop_events(on=True)
    moved = {"podName": name, "podUID": uid_of(target), "nodeName": "node2"}
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update(moved))
    api.drop_events(on=False)
    await api.edit(MIGRATIONS, "ns", "m", lambda obj: obj["status"].update(phase="Succeeded", endTime="2026-01-01T00:00:00Z"))
    await cluster.end_pod(source, message="migrated: the guest continues in another pod")
    await cluster.until(lambda: "finalizers" not in api.get(MIGRATIONS, "ns", "m")["metadata"], "removal of the finalizer")
    await cluster.until(lambda: cluster.vm()["status"]["attempts"][-1]["nodeName"] == "node2", "the move in the machine's attempt")
    assert cluster.phase() == "Running"
    assert "deletionTimestamp" not in api.get(PODS, "ns", name)["metadata"]


async def test_migration_deleted_early_is_cancelled_with_its_pod(api: FakeAPI, cluster: Cluster) -> None:
    source = await cluster.running()
    migration = {
        "metadata": {"name": "m", "namespace": "ns", "finalizers": [names.MIGRATION_FINALIZER]},
        "spec": {"selector": {"name": "testvm"}},
    }
    await api.put(MIGRATIONS, migration)
    await cluster.until(lambda: len(api.all(PODS)) == 2 and api.get(MIGRATIONS, "ns", "m")["status"]["phase"] == "Scheduling", "target pod")
    await api.edit(MIGRATIONS, "ns", "m", lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    await cluster.until(lambda: api.all(MIGRATIONS) == [], "the end of the migration")
    await cluster.until(lambda: [name_of(each) for each in api.all(PODS)] == [name_of(source)], "the end of the target pod")
    assert cluster.phase() == "Running"


async def test_our_api_may_be_away_at_first_and_cut_at_any_time(api: FakeAPI) -> None:
    class Away(FakeAPI):
        down = True

        async def _serve(self, request: Any) -> Any:
            if self.down and "kubevirt.io" in request.path:
                raise errors.ServiceUnavailable("the server is currently unable to handle the request")
            return await super()._serve(request)

    away = Away()
    cluster = Cluster(away)
    await away.put(VMS, a_vm())
    async with working(away):
        await cluster.until(lambda: away.all(LEASES)[0]["spec"]["holderIdentity"], "leadership while our API is away")
        await asyncio.sleep(0.3)
        assert away.all(PODS) == []
        away.down = False
        pod = await cluster.pod()
        await away.cut()
        await cluster.start_pod(pod)
        await cluster.phase_is("Scheduled")
    assert away.all(LEASES)[0]["spec"]["holderIdentity"] == ""


async def test_missing_secret_is_reported_by_field_and_the_pod_kept(cluster: Cluster) -> None:
    disk = {"type": "CloudInitNoCloud", "source": {"userDataSecretRef": {"name": "user"}}}
    await cluster.api.put(VMS, a_vm(domain={"memory": {"guest": "64Mi"}, "devices": {"disks": [disk]}}))
    pod = await cluster.pod()

    def bind(obj: dict[str, Any]) -> None:
        obj["spec"]["nodeName"] = "node1"
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        obj["status"] = {"phase": "Pending", "conditions": [bound]}

    said = {
        "metadata": {"name": "of-the-kubelet", "namespace": "ns"},
        "involvedObject": {"uid": uid_of(pod)},
        "reason": "FailedMount",
        "message": 'MountVolume.SetUp failed for volume "disk-0" : secret "user" not found',
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    await cluster.api.put(EVENTS, said)
    await cluster.api.edit(PODS, "ns", name_of(pod), bind)
    lacking = await cluster.until(
        lambda: next(
            (each for each in cluster.vm()["status"]["conditions"] if (each["type"], each["status"]) == ("DisksReady", "False")), None
        ),
        "DisksReady=False",
    )
    assert lacking["reason"] == "SecretNotFound"
    assert lacking["message"].startswith("spec.domain.devices.disks[0].source.userDataSecretRef: Secret user not found")

    await cluster.start_pod(pod)
    await cluster.phase_is("Scheduled")
    assert condition(cluster.vm()["status"]["conditions"], "DisksReady")["status"] == "True"  # type: ignore[index]  # it was there a moment ago
    assert uid_of(await cluster.pod()) == uid_of(pod)


async def with_a_bad_node(api: FakeAPI, *, minutes: int) -> None:
    """Let starts of three machines of two namespaces fail on node2, ``minutes`` ago, and succeed on node1."""
    failed, ran = (times.to_rfc3339(datetime.now(UTC) - timedelta(minutes=minutes, seconds=each)) for each in (30, 0))
    attempts = [
        {"number": 1, "podName": "p", "nodeName": "node2", "result": "Failed", "endTime": failed},
        {"number": 2, "podName": "p", "nodeName": "node1", "runningTime": ran},
    ]
    await api.put(NODES, {"metadata": {"name": "node2"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    for name in ("a", "b", "c"):
        other = a_vm()
        other["metadata"] |= {"name": name, "namespace": "other" if name == "c" else "ns"}
        await api.put(VMS, {**other, "status": {"phase": "Running", "attempt": 2, "nodeName": "node1", "attempts": attempts}})


def avoids_node2(pod: dict[str, Any]) -> bool:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return {"key": "metadata.name", "operator": "NotIn", "values": ["node2"]} in [
        field for each in terms for field in each["preference"].get("matchFields", [])
    ]


async def test_a_start_avoids_a_node_where_others_failed(api: FakeAPI, cluster: Cluster) -> None:
    await with_a_bad_node(api, minutes=1)
    await api.put(VMS, a_vm())
    assert avoids_node2(await cluster.pod())
    await cluster.until(lambda: "NonOperational" in cluster.events(), "an Event about the node")


async def test_one_start_at_a_time_tries_a_node_after_its_pause(api: FakeAPI, cluster: Cluster) -> None:
    await with_a_bad_node(api, minutes=15)
    for name in ("x", "y", "z"):
        machine = a_vm()
        machine["metadata"] |= {"name": name, "uid": f"6f1c2d3e-0000-4000-8000-0000000000{ord(name)}"}
        await api.put(VMS, machine)
    await cluster.until(lambda: len(api.all(PODS)) == 3, "three pods")
    assert sorted(map(avoids_node2, api.all(PODS))) == [False, True, True]
    await cluster.until(lambda: "NonOperationalTrial" in cluster.events(), "an Event about the node")
