from __future__ import annotations

import asyncio
from typing import Any

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import condition, name_of, uid_of
from apiserver.apis.virt.places import names
from tests.component.controller.test_controller import MIGRATIONS, PODS, VMS, Cluster, working
from tests.fakes.kubeapi import FakeAPI

GATE = names.GUEST_RUNNING_GATE
KUBELETS = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2099-01-01T00:00:00Z"}


def said(api: FakeAPI, pod: dict[str, Any]) -> str:
    found = condition(api.get(PODS, "ns", name_of(pod))["status"].get("conditions"), GATE)
    return "" if found is None else str(found["status"])


def of_status(api: FakeAPI) -> list[str]:
    return [path.split("/")[-2] for _, path, _ in api.writes if "/pods/" in path and path.endswith("/status")]


async def report(api: FakeAPI, state: str = "running", **status: Any) -> None:
    domain = {"state": state, "reason": "booted", "type": "qemu"}
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update({"phase": "Running", "domain": domain, **status}))


async def test_a_pod_is_ready_while_its_guest_runs(api: FakeAPI, cluster: Cluster) -> None:
    pod = await cluster.running()
    assert pod["spec"]["readinessGates"] == [{"conditionType": GATE}]
    assert said(api, pod) == ""
    for state, wanted in (("running", "True"), ("paused", "False"), ("running", "True")):
        await report(api, state)
        await cluster.until(lambda wanted=wanted: said(api, pod) == wanted, f"{wanted} while {state}")  # type: ignore[misc]  # a default binds it
    assert KUBELETS in api.get(PODS, "ns", name_of(pod))["status"]["conditions"]
    await asyncio.sleep(0.2)
    assert of_status(api) == [name_of(pod)] * 3


async def test_a_migrations_assignment_moves_its_connections(api: FakeAPI, cluster: Cluster) -> None:
    source = await cluster.running()
    await report(api)
    made = await api.put(MIGRATIONS, {"metadata": {"name": "m", "namespace": "ns"}, "spec": {"selector": {"name": "testvm"}}})
    name = names.target_pod_name("testvm", made["metadata"]["uid"])
    target = await cluster.until(lambda: api.get(PODS, "ns", name), "target pod")
    await cluster.start_pod(target, "node2")
    await cluster.until(lambda: api.get(MIGRATIONS, "ns", "m")["status"]["phase"] == "PreparingTarget", "PreparingTarget")
    assert (said(api, source), said(api, target)) == ("True", "")
    await report(api, podName=name, podUID=uid_of(target), nodeName="node2")
    await cluster.until(lambda: (said(api, source), said(api, target)) == ("False", "True"), "the assignment")
    assert of_status(api) == [name_of(source), name, name_of(source)]


async def test_next_leader_continues_readiness(api: FakeAPI) -> None:
    cluster = Cluster(api)
    async with working(api, "--no-leader-elect"):
        pod = await cluster.running()
        await report(api)
        await cluster.until(lambda: said(api, pod) == "True", "a ready pod")
    await report(api, "paused")
    async with working(api, "--no-leader-elect"):
        await cluster.until(lambda: said(api, pod) == "False", "what changed meanwhile")


async def test_a_pod_of_an_older_release_is_left_as_it_is(api: FakeAPI, cluster: Cluster) -> None:
    def without_gate(collection: str, obj: dict[str, Any]) -> None:
        if collection == PODS:
            obj["spec"].pop("readinessGates")

    api.admit = without_gate
    await cluster.running()
    await report(api)
    await asyncio.sleep(0.3)
    assert of_status(api) == []


async def test_a_refusal_is_said_and_nothing_else_waits(api: FakeAPI, cluster: Cluster) -> None:
    judge = api.judge
    assert judge is not None

    def refuse(token: str, collection: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        if collection == PODS:
            raise errors.Forbidden("a policy of the cluster")
        judge(token, collection, old, new)

    api.judge = refuse
    pod = await cluster.running()
    await report(api)
    await cluster.until(lambda: "FailedReadiness" in cluster.events(), "an Event")
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["spec"].update(runStrategy="Halted"))
    await cluster.until(lambda: api.get(PODS, "ns", name_of(pod))["metadata"].get("deletionTimestamp"), "the deletion of the pod")


async def test_a_pod_that_was_exchanged_meanwhile_is_not_written(api: FakeAPI, cluster: Cluster) -> None:
    """The cache has the old pod: the uid in the patch prevents a write to the new one."""
    pod = await cluster.running()
    api.drop_events(on=True)
    await api.edit(PODS, "ns", name_of(pod), lambda obj: obj["metadata"].update(uid="another"))
    api.drop_events(on=False)
    await report(api)
    await cluster.until(lambda: of_status(api), "a try")
    assert said(api, pod) == ""
    assert "FailedReadiness" not in cluster.events()
