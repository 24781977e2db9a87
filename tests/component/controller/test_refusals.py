from __future__ import annotations

import asyncio
from typing import Any

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import dig, name_of
from tests.component.controller.test_controller import CLAIMS, PODS, VMS, Cluster
from tests.component.controller.test_pod_sizes import LARGE, SMALL, resources_of
from tests.fakes.kubeapi import FakeAPI

MANY = 10


def refuse_resizes(api: FakeAPI) -> None:
    judge = api.judge
    assert judge is not None

    def refuse(token: str, collection: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        if collection == PODS and dig(old, "spec") != dig(new, "spec"):
            raise errors.Forbidden("exceeded quota: memory")
        judge(token, collection, old, new)

    api.judge = refuse


def refuse_pods_of_disks(api: FakeAPI, room: int) -> list[str]:
    names: list[str] = []

    def refuse(collection: str, obj: dict[str, Any]) -> None:
        if collection != PODS or "-volume-" not in name_of(obj):
            return
        if len(names) >= room:
            raise errors.Forbidden("exceeded quota: pods")
        names.append(name_of(obj))

    api.admit = refuse
    return names


async def edited(api: FakeAPI, cluster: Cluster, *disks: str) -> dict[str, Any]:
    for each in disks:
        claim = {"metadata": {"name": each, "namespace": "ns"}, "spec": {"accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Bound"}}
        await api.put(CLAIMS, claim)
    pod = await cluster.running()

    def edit(vm: dict[str, Any]) -> None:
        domain = vm["spec"]["domain"]
        vm["status"] |= {
            "domain": {"state": "running", "type": "qemu", "liveChanges": ["memory.guest", "disk"]},
            "running": {"generation": 1, "domain": {**domain, "memory": SMALL}},
        }
        added = [{"name": each, "type": "PersistentVolumeClaim", "source": {"name": each}} for each in disks]
        vm["spec"]["domain"] = {**domain, "memory": LARGE, "devices": {**domain["devices"], "disks": added}}

    await api.edit(VMS, "ns", "testvm", edit)
    return pod


def disks_of(cluster: Cluster) -> dict[str, str]:
    return {each["name"]: each.get("reason") or each["phase"] for each in cluster.vm()["status"]["volumeStatus"]}


async def test_refused_resize_is_not_repeated_while_a_disk_waits(api: FakeAPI, cluster: Cluster) -> None:
    refuse_resizes(api)
    await edited(api, cluster, "data")
    told = await cluster.until(lambda: cluster.vm()["status"]["podResize"], "the reason")
    assert told == {"reason": "PodResizeRefused", "message": "exceeded quota: memory"}
    await asyncio.sleep(1)
    assert len([each for each in api.requests if each[0] == "PATCH" and each[1].endswith("/resize")]) == 1
    assert len([each for each in api.requests if each[0] == "PATCH"]) < MANY
    assert disks_of(cluster) == {"data": "PodNotRunning"}


async def test_refused_pod_of_a_disk_stops_no_resize(api: FakeAPI, cluster: Cluster) -> None:
    refuse_pods_of_disks(api, room=0)
    pod = await edited(api, cluster, "data")

    def memory() -> str:
        return str(resources_of(api.get(PODS, "ns", name_of(pod)))["limits"]["memory"])

    before = resources_of(pod)["limits"]["memory"]
    await cluster.until(lambda: memory() != before, "the resize")
    await cluster.until(lambda: cluster.vm()["status"]["podResize"]["reason"] == "PodResizeInProgress", "the wait for the kubelet")
    assert disks_of(cluster) == {"data": "PodRefused"}


async def test_refused_pod_of_a_disk_stops_no_other_disk(api: FakeAPI, cluster: Cluster) -> None:
    made = refuse_pods_of_disks(api, room=1)
    await edited(api, cluster, "a", "b", "c")
    await cluster.until(lambda: made, "the pod of a disk")
    await cluster.start_pod(await cluster.until(lambda: api.get(PODS, "ns", made[0]), "the pod"))
    await cluster.until(
        lambda: sorted(disks_of(cluster).values()) == ["AttachedToNode", "PodRefused", "PodRefused"], "the record of the disk"
    )
