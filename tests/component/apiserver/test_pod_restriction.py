from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.client.config import Config
from apiserver.client.rest import Client
from apiserver.registry.virt.pod_restriction import PodRestriction
from tests.component.apiserver.conftest import Pki
from tests.component.apiserver.test_delegation import REVIEWS, TOKENS
from tests.component.apiserver.test_node_restriction import (
    BASE,
    MACHINE,
    MIGRATION,
    MOVE,
    MOVE_STATUS,
    PREPARING,
    RUNNING,
    SCHEDULED,
    VM,
    VM_STATUS,
    Cluster,
    entered,
    launcher_pod,
    serving,
)
from tests.fakes import rbac
from tests.fakes.admission import asking

Json = dict[str, Any]
THIEF = [("X-Remote-User", "system:serviceaccount:kubevirt:virt-controller")]
SECRET = {"name": "disk-0", "projected": {"sources": [{"secret": {"name": "password"}}]}}
CLAIM = {"name": "disk-0", "persistentVolumeClaim": {"claimName": "database"}}
IMAGE = {"name": "disk-0", "image": {"reference": "evil.example/os:v1"}}
PODS = "/api/v1/pods"


@pytest.fixture
async def cluster(pki: Pki, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with serving(pki, tmp_path) as made:
        granted = rbac.authorizer("virt-api")
        made.kube.authorize = lambda *request: request[1] in (REVIEWS, TOKENS) or granted(*request)
        yield made


async def patch(cluster: Cluster, path: str, status: Json) -> tuple[int, Any]:
    return await cluster.ask("PATCH", path, {"status": status}, THIEF, kind="merge-patch+json")


async def named(cluster: Cluster, name: str, uid: str) -> tuple[int, Any]:
    return await patch(cluster, VM_STATUS, {"podName": name, "podUID": uid})


async def asked(cluster: Cluster) -> list[str]:
    return [path for method, path, _ in cluster.kube.requests if method == "GET" and "/pods/" in path]


async def test_a_machine_is_not_handed_to_a_pod_of_another_namespace(cluster: Cluster) -> None:
    """The pod has its namespace's Secret in place of the VM's disk, and names the VM as owner."""
    machine = await cluster.admin("GET", VM)
    await cluster.kube.put(PODS, launcher_pod(machine, "virt-launcher-vm1-aaaaa", "uid-9", SECRET, namespace="bank"))

    code, status = await named(cluster, "virt-launcher-vm1-aaaaa", "uid-9")

    assert (code, status["reason"]) == (403, "Forbidden")
    assert 'no pod "virt-launcher-vm1-aaaaa" in namespace "acc" has this uid' in status["message"]
    assert [each["field"] for each in status["details"]["causes"]] == ["status.podUID"]
    assert (await cluster.admin("GET", VM))["status"]["podUID"] == "uid-1"


async def test_the_name_of_an_own_pod_does_not_bring_in_anothers_uid(cluster: Cluster) -> None:
    machine = await cluster.admin("GET", VM)
    await cluster.kube.put(PODS, launcher_pod(machine, "p1", "uid-9", SECRET, namespace="bank"))
    assert (await named(cluster, "p1", "uid-9"))[0] == 403
    assert (await named(cluster, "../bank/pods/p1", "uid-9"))[0] == 422
    assert (await named(cluster, "", "uid-9"))[0] in (403, 422)


@pytest.mark.parametrize(("volume", "what"), [(SECRET, "Secret password"), (CLAIM, "database"), (IMAGE, "Image evil.example/os:v1")])
async def test_machine_is_not_handed_to_a_pod_with_foreign_mounts(cluster: Cluster, volume: Json, what: str) -> None:
    machine = await cluster.admin("GET", VM)
    await cluster.kube.put(PODS, launcher_pod(machine, "virt-launcher-vm1-aaaaa", "uid-9", volume))
    code, status = await named(cluster, "virt-launcher-vm1-aaaaa", "uid-9")
    assert code == 403
    assert f"{what} as volume disk-0: the virtual machine does not name it" in status["message"]


async def test_a_machine_is_handed_to_its_own_pod(cluster: Cluster) -> None:
    machine = await cluster.admin("GET", VM)
    await cluster.kube.put(PODS, launcher_pod(machine, "virt-launcher-vm1-aaaaa", "uid-9"))
    assert (await named(cluster, "virt-launcher-vm1-aaaaa", "uid-9"))[0] == 200
    assert (await asked(cluster))[-1] == "/api/v1/namespaces/acc/pods/virt-launcher-vm1-aaaaa"


async def test_a_disk_that_the_machine_names_may_be_there(cluster: Cluster) -> None:
    disks = [{"type": "Secret", "source": {"name": "password"}}]
    spec = {"domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": disks}}}
    machine = await cluster.admin("POST", f"{BASE}/virtualmachines", {**MACHINE, "metadata": {"name": "vm2"}, "spec": spec})
    await cluster.kube.put(PODS, launcher_pod(machine, "virt-launcher-vm2-aaaaa", "uid-9", SECRET))
    status = {**SCHEDULED, "podName": "virt-launcher-vm2-aaaaa", "podUID": "uid-9"}
    assert (await patch(cluster, f"{BASE}/virtualmachines/vm2/status", status))[0] == 200


async def test_recorded_pod_of_a_disk_is_own_and_has_only_its_claim(cluster: Cluster) -> None:
    disks = [{"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data"}}]
    spec = {"domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": disks}}}
    machine = await cluster.admin("POST", f"{BASE}/virtualmachines", {**MACHINE, "metadata": {"name": "vm2"}, "spec": spec})
    volume = {"name": "attachment", "persistentVolumeClaim": {"claimName": "data"}}
    name = "virt-launcher-vm2-volume-aaaaa"
    mount = {"name": "attachment", "mountPath": "/var/lib/kubevirt/attachment"}
    there = {"nodeName": "node1", "containers": [{"name": "compute", "volumeMounts": [mount]}]}
    empty = {"containers": [{"name": "compute", "volumeMounts": [{**mount, "name": "run"}]}]}
    part = {"containers": [{"name": "compute", "volumeMounts": [{**mount, "subPath": "other"}]}]}
    for letter, uid, volumes, namespace, changes in (
        ("a", "uid-9", (volume,), "acc", {}),
        ("b", "uid-8", (volume, CLAIM), "acc", {}),
        ("c", "uid-7", (volume,), "bank", {}),
        ("d", "uid-6", (volume,), "acc", {"nodeName": "node2"}),
        ("e", "uid-5", (volume,), "acc", empty),
        ("f", "uid-4", (volume,), "acc", part),
    ):
        made = launcher_pod(machine, f"{name[:-1]}{letter}", uid, *volumes, namespace=namespace)
        await cluster.kube.put(PODS, {**made, "spec": {**made["spec"], **there, **changes}})

    async def recorded(name: str, uid: str, disk: str = "data") -> tuple[int, Any]:
        entry = {"name": disk, "claimName": "data", "hotplugVolume": {"attachPodName": name, "attachPodUID": uid}}
        return await patch(
            cluster, f"{BASE}/virtualmachines/vm2/status", {"phase": "Running", "nodeName": "node1", "volumeStatus": [entry]}
        )

    for pod, uid, disk, why in (
        (f"{name[:-1]}b", "uid-8", "data", "mounts PersistentVolumeClaim database as volume disk-0: the virtual machine does not name it"),
        (f"{name[:-1]}c", "uid-7", "data", 'in namespace "acc" has this uid'),
        (f"{name[:-1]}d", "uid-6", "data", "is on node node2, and not on the guest's node"),
        (f"{name[:-1]}e", "uid-5", "data", "does not mount PersistentVolumeClaim data at /var/lib/kubevirt/attachment"),
        (f"{name[:-1]}f", "uid-4", "data", "does not mount PersistentVolumeClaim data at /var/lib/kubevirt/attachment"),
        (name, "uid-9", "other", 'disk "other" with PersistentVolumeClaim data is not in the spec'),
        (name, "uid-1", "data", 'in namespace "acc" has this uid'),
    ):
        code, status = await recorded(pod, uid, disk)
        assert code == 403
        assert {each["field"] for each in status["details"]["causes"]} == {"status.volumeStatus"}
        assert why in status["message"]
    assert (await recorded(name, "uid-9"))[0] == 200
    before = len(await asked(cluster))
    assert (await patch(cluster, f"{BASE}/virtualmachines/vm2/status", {"volumeStatus": []}))[0] == 200
    assert len(await asked(cluster)) == before


@pytest.mark.parametrize("reference", ["registry.example.com/tools:1", "registry.example.com/other:1"])
async def test_recorded_pod_of_a_medium_has_only_its_image(cluster: Cluster, reference: str) -> None:
    source = {"reference": "registry.example.com/tools:1", "path": "disk/tools.iso"}
    disks = [{"name": "tray", "device": "cdrom", "type": "Image", "source": source}]
    spec = {"domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": disks}}}
    machine = await cluster.admin("POST", f"{BASE}/virtualmachines", {**MACHINE, "metadata": {"name": "vm2"}, "spec": spec})
    name = "virt-launcher-vm2-volume-aaaaa"
    made = launcher_pod(machine, name, "uid-9", {"name": "attachment", "image": {"reference": reference}}, namespace="acc")
    containers = [{"name": "compute", "volumeMounts": [{"name": "attachment", "mountPath": "/var/lib/kubevirt/attachment"}]}]
    await cluster.kube.put(PODS, {**made, "spec": {**made["spec"], "nodeName": "node1", "containers": containers}})
    entry = {"name": "tray", "hotplugVolume": {"attachPodName": name, "attachPodUID": "uid-9"}}
    status = {"phase": "Running", "nodeName": "node1", "volumeStatus": [entry]}
    code, found = await patch(cluster, f"{BASE}/virtualmachines/vm2/status", status)
    assert code == (200 if reference == source["reference"] else 403)
    if code == 403:
        assert f"does not mount Image {source['reference']} at /var/lib/kubevirt/attachment" in found["message"]
        assert f"mounts Image {reference} as volume attachment: the virtual machine does not name it" in found["message"]


async def test_every_kind_of_write_by_any_user_is_checked(cluster: Cluster) -> None:
    obj = await cluster.admin("GET", VM)
    stolen = {**SCHEDULED, "podUID": "uid-9"}
    administrator = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")]
    applied = {**{each: obj[each] for each in ("apiVersion", "kind")}, "metadata": {"name": "vm1"}, "status": stolen}
    for headers in (THIEF, administrator):
        for query in ("", "?dryRun=All"):
            assert (await cluster.ask("PUT", VM_STATUS + query, {**obj, "status": stolen}, headers))[0] == 403
            code, _ = await cluster.ask("PATCH", VM_STATUS + query, {"status": {"podUID": "uid-9"}}, headers, kind="merge-patch+json")
            assert code == 403
        operation = [{"op": "replace", "path": "/status/podUID", "value": "uid-9"}]
        assert (await cluster.ask("PATCH", VM_STATUS, operation, headers, kind="json-patch+json"))[0] == 403
        query = "?fieldManager=thief&force=true"
        assert (await cluster.ask("PATCH", VM_STATUS + query, applied, headers, kind="apply-patch+yaml"))[0] == 403
    assert (await cluster.admin("GET", VM))["status"]["podUID"] == "uid-1"


async def test_a_new_machine_comes_with_no_pod(cluster: Cluster) -> None:
    body = {**MACHINE, "metadata": {"name": "vm2"}, "status": {**SCHEDULED, "podUID": "uid-9"}}
    code, answer = await cluster.ask("POST", f"{BASE}/virtualmachines", body, [("X-Remote-User", "admin")])
    assert code == 403 or not answer.get("status", {}).get("podUID")


async def test_status_without_another_pod_causes_no_lookup(cluster: Cluster) -> None:
    before = await asked(cluster)
    assert (await patch(cluster, VM_STATUS, {"podIP": "10.244.1.8"}))[0] == 200
    await cluster.kube.remove(PODS, "acc", "p1")
    assert (await patch(cluster, VM_STATUS, {"podIP": "10.244.1.9"}))[0] == 200
    assert (await patch(cluster, VM_STATUS, {"podUID": None}))[0] == 200
    assert await asked(cluster) == before
    assert (await named(cluster, "p1", "uid-1"))[0] == 403, "a pod that is gone is named anew"


async def test_a_guests_memory_goes_into_no_pod_of_another_namespace(cluster: Cluster) -> None:
    """Nor into a target with another image."""
    machine = await cluster.admin("GET", VM)
    await cluster.put_status(VM_STATUS, RUNNING)
    await cluster.admin("POST", f"{BASE}/migrations", MIGRATION)
    await cluster.kube.put(PODS, launcher_pod(machine, "p2", "uid-9", namespace="thieves"))
    await cluster.kube.put(PODS, launcher_pod(machine, "p3", "uid-3", IMAGE))
    for pod, uid, why in (("p2", "uid-9", "has this uid"), ("p3", "uid-3", "evil.example")):
        code, status = await patch(cluster, MOVE_STATUS, {**PREPARING, "targetPod": pod, "targetPodUID": uid})
        assert (code, status["details"]["causes"][0]["field"]) == (403, "status.targetPodUID")
        assert why in status["message"]
    assert (await patch(cluster, MOVE_STATUS, PREPARING))[0] == 200


async def test_moved_guests_connections_go_to_its_own_target_pod_only(cluster: Cluster) -> None:
    machine = await cluster.admin("GET", VM)
    await cluster.put_status(VM_STATUS, RUNNING)
    await cluster.admin("POST", f"{BASE}/migrations", MIGRATION)
    target = launcher_pod(machine, "p2", "uid-2")
    addresses = ["10.244.1.7", "fd00:10::7"]
    await cluster.kube.put(PODS, {**target, "status": {"podIP": addresses[0], "podIPs": [{"ip": each} for each in addresses]}})
    for stolen in (["10.244.9.9"], [*addresses, "10.244.9.9"]):
        code, status = await patch(cluster, MOVE_STATUS, {**PREPARING, "targetPodIPs": stolen})
        assert (code, status["details"]["causes"][0]["field"]) == (403, "status.targetPodIPs")
        assert f"does not have the address '{stolen[-1]}'" in status["message"]
    for nobodys in ("169.254.169.254", "fd00:ec2::254"):
        code, status = await patch(cluster, MOVE_STATUS, {**PREPARING, "targetPodIPs": [nobodys]})
        assert (code, status["details"]["causes"][0]["field"]) == (422, "status.targetPodIPs[0]")
    assert (await patch(cluster, MOVE_STATUS, {**PREPARING, "targetPodIPs": addresses}))[0] == 200
    before = await asked(cluster)
    assert (await patch(cluster, MOVE_STATUS, {"message": "it goes"}))[0] == 200
    assert await asked(cluster) == before
    await cluster.kube.remove(PODS, "acc", "p2")
    await cluster.kube.put(PODS, {**target, "metadata": {**target["metadata"], "uid": "another"}, "status": {"podIP": "10.244.9.9"}})
    code, status = await patch(cluster, MOVE_STATUS, {"targetPodIPs": ["10.244.9.9"]})
    assert (code, status["details"]["causes"][0]["field"]) == (403, "status.targetPodIPs")


async def test_addresses_of_one_target_are_not_left_to_the_next(cluster: Cluster) -> None:
    machine = await cluster.admin("GET", VM)
    await cluster.put_status(VM_STATUS, RUNNING)
    await cluster.admin("POST", f"{BASE}/migrations", MIGRATION)
    for name, uid, address in (("p2", "uid-2", "10.244.1.7"), ("p3", "uid-3", "10.244.1.8")):
        await cluster.kube.put(PODS, {**launcher_pod(machine, name, uid), "status": {"podIP": address}})
    assert (await patch(cluster, MOVE_STATUS, {**PREPARING, "targetPodIPs": ["10.244.1.7"]}))[0] == 200
    code, status = await patch(cluster, MOVE_STATUS, {"targetPod": "p3", "targetPodUID": "uid-3"})
    assert (code, status["details"]["causes"][0]["field"]) == (403, "status.targetPodIPs")
    assert (await patch(cluster, MOVE_STATUS, {"targetPod": "p3", "targetPodUID": "uid-3", "targetPodIPs": ["10.244.1.8"]}))[0] == 200


async def test_arrival_at_an_admitted_target_needs_no_lookup(cluster: Cluster) -> None:
    await cluster.put_status(VM_STATUS, RUNNING)
    move = await cluster.admin("POST", f"{BASE}/migrations", MIGRATION)
    await cluster.put_status(MOVE_STATUS, {**entered(PREPARING, "Running"), "targetAddress": "10.0.0.2:8445"})
    before = await asked(cluster)
    record = {"name": "move", "uid": move["metadata"]["uid"], "sourceNode": "node1", "sourcePod": "p1", "targetNode": "node2"}
    arrived = {**RUNNING, "nodeName": "node2", "podName": "p2", "podUID": "uid-2", "migration": {**record, "targetPod": "p2"}}
    await cluster.kube.remove(PODS, "acc", "p2")
    for stolen in ({"podUID": "uid-3"}, {"migration": {**record, "name": "other"}}):
        assert (await patch(cluster, VM_STATUS, {**arrived, **stolen}))[0] == 403
    looked = len(await asked(cluster)) - len(before)
    assert (await patch(cluster, VM_STATUS, arrived))[0] == 200
    assert (len(await asked(cluster)) - len(before), looked) == (2, 2)


async def test_a_migration_that_is_over_brings_no_machine_anywhere(cluster: Cluster) -> None:
    await cluster.put_status(VM_STATUS, RUNNING)
    await cluster.admin("POST", f"{BASE}/migrations", MIGRATION)
    await cluster.put_status(MOVE_STATUS, PREPARING)
    await cluster.put_status(MOVE_STATUS, entered(PREPARING, "Failed", endTime=PREPARING["startTime"]))
    await cluster.kube.remove(PODS, "acc", "p2")
    assert (await patch(cluster, VM_STATUS, {"podName": "p2", "podUID": "uid-2", "migration": {"name": "move"}}))[0] == 403


async def test_unavailable_kube_apiserver_trusts_no_status(cluster: Cluster) -> None:
    machine = await cluster.admin("GET", VM)
    await cluster.kube.put(PODS, launcher_pod(machine, "p9", "uid-9"))
    granted, cluster.kube.authorize = cluster.kube.authorize, lambda *request: request[1] in (REVIEWS, TOKENS)
    code, status = await named(cluster, "p9", "uid-9")
    assert (code, status["details"]["retryAfterSeconds"]) == (503, 1)
    assert "cannot read pod p9" in status["message"]
    cluster.kube.authorize = granted
    assert (await named(cluster, "p9", "uid-9"))[0] == 200


async def test_an_apiserver_that_does_not_answer_admits_nothing() -> None:
    vm = {**MACHINE, "metadata": {"name": "vm1", "namespace": "acc", "uid": "u"}, "status": {"podName": "p9", "podUID": "uid-9"}}
    attributes = asking("UPDATE", VIRTUAL_MACHINES, "status", "acc", "vm1", obj=vm, old={**vm, "status": {}})
    async with Client(Config(server="http://127.0.0.1:1", token="t"), user_agent="test") as client:
        with pytest.raises(errors.ServiceUnavailable, match="cannot read pod p9"):
            await PodRestriction(client).validate(attributes)


async def test_the_refusal_is_bounded(cluster: Cluster) -> None:
    machine = await cluster.admin("GET", VM)
    volumes = [{**copy.deepcopy(CLAIM), "name": f"v{each}"} for each in range(99)]
    await cluster.kube.put(PODS, launcher_pod(machine, "p9", "uid-9", *volumes))
    code, status = await named(cluster, "p9", "uid-9")
    assert (code, len(status["details"]["causes"])) == (403, 16)
    assert status["message"].endswith("and 83 more]")


async def test_status_without_a_target_pod_is_refused(cluster: Cluster) -> None:
    await cluster.put_status(VM_STATUS, RUNNING)
    await cluster.admin("POST", f"{BASE}/migrations", MIGRATION)
    assert (await cluster.admin("GET", MOVE))["spec"]["selector"]["name"] == "vm1"
    assert (await patch(cluster, MOVE_STATUS, {**PREPARING, "targetPod": None}))[0] == 403
