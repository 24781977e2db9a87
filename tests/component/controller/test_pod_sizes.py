from __future__ import annotations

from typing import Any

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import dig, name_of
from apiserver.apis.virt.places import names
from tests.component.controller.test_controller import PODS, VMS, Cluster
from tests.fakes.kubeapi import FakeAPI

SMALL = {"guest": "256Mi", "maxGuest": "1Gi"}
LARGE = {**SMALL, "guest": "512Mi"}
GRANTED = {"guestMemoryBytes": 512 << 20}


def resources_of(pod: dict[str, Any]) -> Any:
    return pod["spec"]["containers"][0]["resources"]


async def edited(api: FakeAPI, cluster: Cluster) -> dict[str, Any]:
    pod = await cluster.running()

    def edit(vm: dict[str, Any]) -> None:
        domain = vm["spec"]["domain"]
        vm["status"] |= {
            "domain": {"state": "running", "type": "qemu", "liveChanges": ["memory.guest"]},
            "running": {"generation": 1, "domain": {**domain, "memory": SMALL}},
        }
        domain["memory"] = LARGE

    await api.edit(VMS, "ns", "testvm", edit)
    return pod


async def test_pod_is_resized_and_what_the_kubelet_did_is_recorded(api: FakeAPI, cluster: Cluster) -> None:
    pod = await edited(api, cluster)

    def now() -> dict[str, Any]:
        return api.get(PODS, "ns", name_of(pod))

    before = resources_of(pod)
    await cluster.until(lambda: resources_of(now())["limits"]["memory"] != before["limits"]["memory"], "the resize")
    found = resources_of(now())
    assert found["requests"]["cpu"] == before["requests"]["cpu"]
    assert found["requests"]["memory"] == found["limits"]["memory"]
    await cluster.until(lambda: cluster.vm()["status"]["podResize"]["reason"] == "PodResizeInProgress", "the wait for the kubelet")

    def resized(obj: dict[str, Any]) -> None:
        obj["status"]["containerStatuses"] = [{"name": names.CONTAINER, "state": {"running": {}}, "resources": found}]

    await api.edit(PODS, "ns", name_of(pod), resized)
    await cluster.until(lambda: cluster.vm()["status"]["podResize"] == GRANTED, "the record")


async def test_refused_resize_is_told_in_the_status(api: FakeAPI, cluster: Cluster) -> None:
    judge = api.judge
    assert judge is not None

    def refuse(token: str, collection: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        if collection == PODS and dig(old, "spec") != dig(new, "spec"):
            raise errors.Forbidden("exceeded quota: full")
        judge(token, collection, old, new)

    api.judge = refuse
    await edited(api, cluster)
    told = await cluster.until(lambda: cluster.vm()["status"]["podResize"], "the reason")
    assert told == {"reason": "PodResizeRefused", "message": "exceeded quota: full"}


async def test_resize_is_repeated_after_a_conflict_of_the_quota(api: FakeAPI, cluster: Cluster) -> None:
    """Other pods use the quota at the same moment. No event follows."""
    judge, refused = api.judge, iter([True, True])
    assert judge is not None

    def refuse(token: str, collection: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        if collection == PODS and dig(old, "spec") != dig(new, "spec") and next(refused, False):
            raise errors.Conflict("Operation cannot be fulfilled on resourcequotas")
        judge(token, collection, old, new)

    api.judge = refuse
    pod = await edited(api, cluster)
    before = resources_of(pod)
    await cluster.until(lambda: resources_of(api.get(PODS, "ns", name_of(pod))) != before, "the resize")
    assert next(refused, None) is None
