from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import name_of, uid_of
from apiserver.apis.virt.lifecycle import migration_attempts
from apiserver.apis.virt.places import names
from controller.reconcilers.migrations import migration_retries
from controller.reconcilers.settings import Times
from tests.component.controller.test_controller import EVENTS, MIGRATIONS, NODES, PODS, VMS, Cluster, a_vm, working
from tests.fakes.kubeapi import FakeAPI, Key


def a_migration(name: str, machine: str = "testvm", **status: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "ns", "finalizers": [names.MIGRATION_FINALIZER]},
        "spec": {"selector": {"name": machine}},
    }
    return {**made, "status": status} if status else made


def a_finished_migration(number: int, owner: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    made = a_migration(f"old-{number:03}", phase="Succeeded", endTime="2026-01-01T00:00:00Z", sourcePod="p", targetPod="q")
    made["metadata"] |= {"creationTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z", "ownerReferences": [owner], **metadata}
    del made["metadata"]["finalizers"]
    return made


def owner_of(vm: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "name": name_of(vm), "uid": uid_of(vm)}


async def phase_is(cluster: Cluster, name: str, phase: str) -> None:
    await cluster.until(lambda: cluster.api.get(MIGRATIONS, "ns", name)["status"]["phase"] == phase, f"{name} {phase}")


def left(api: FakeAPI) -> list[str]:
    return [name_of(each) for each in api.all(MIGRATIONS)]


async def test_users_migration_is_owned_by_its_machine(api: FakeAPI, cluster: Cluster) -> None:
    await cluster.running()
    await api.put(MIGRATIONS, a_migration("made-by-hand"))
    await api.put(VMS, a_vm("off", runStrategy="Manual"))
    await api.put(MIGRATIONS, a_migration("too-early", "off"))
    await phase_is(cluster, "made-by-hand", "Scheduling")
    assert api.get(MIGRATIONS, "ns", "made-by-hand")["metadata"]["ownerReferences"] == [owner_of(cluster.vm())]
    await phase_is(cluster, "too-early", "Failed")
    assert api.get(MIGRATIONS, "ns", "too-early")["metadata"]["ownerReferences"] == [owner_of(cluster.vm("off"))]


@pytest.mark.parametrize("own", [[], [{"blockOwnerDeletion": False}]], ids=["not named", "named behind"])
async def test_machine_becomes_first_owner_with_one_write(api: FakeAPI, cluster: Cluster, own: list[dict[str, Any]]) -> None:
    await cluster.running()
    owner = owner_of(cluster.vm())
    bogus = {**owner, "uid": "made-up"}
    named = [{**owner, **each} for each in own]
    made = a_migration("made-by-hand")
    made["metadata"]["ownerReferences"] = [bogus, *named]
    await api.put(MIGRATIONS, made)
    await phase_is(cluster, "made-by-hand", "Scheduling")
    assert api.get(MIGRATIONS, "ns", "made-by-hand")["metadata"]["ownerReferences"] == [*(named or [owner]), bogus]
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update(podIP="10.0.0.2"))
    await cluster.start_pod(
        await cluster.until(lambda: next(each for each in api.all(PODS) if "kubevirt.io/migration" in str(each["metadata"])), "its pod"),
        "node2",
    )
    await phase_is(cluster, "made-by-hand", "PreparingTarget")
    assert len([body for *_, body in api.writes if "ownerReferences" in (body.get("metadata") or {}) and "spec" not in body]) == 1


class OlderPolicy(FakeAPI):
    def __init__(self) -> None:
        super().__init__()
        self.refused: set[str] = set()

    async def _write(self, key: Key, subresource: str, method: str, body: dict[str, Any], token: str) -> dict[str, Any]:
        if "ownerReferences" in (body.get("metadata") or {}):
            self.refused.add(key[2])
            raise errors.Forbidden("no owners")
        return await super()._write(key, subresource, method, body, token)

    async def _delete(self, key: Key, options: dict[str, Any]) -> dict[str, Any]:
        if key[0] == MIGRATIONS:
            self.refused.add(key[2])
            raise errors.Forbidden("no deletions")
        return await super()._delete(key, options)


async def test_refused_ownership_does_not_affect_migrations() -> None:
    api = OlderPolicy()
    async with working(api, "--no-leader-elect"):
        cluster = Cluster(api)
        await cluster.running()
        owner = owner_of(cluster.vm())
        for number in range(1, 8):
            await api.put(MIGRATIONS, a_finished_migration(number, owner))
        await api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update(podIP="10.0.0.2"))
        await cluster.until(lambda: {"old-001", "old-002"} <= api.refused, "refusals")
        await api.put(MIGRATIONS, a_migration("m"))
        await phase_is(cluster, "m", "Scheduling")
        assert "ownerReferences" not in api.get(MIGRATIONS, "ns", "m")["metadata"]
        assert len(left(api)) == 8


async def test_newest_ended_migrations_are_kept_without_reads(api: FakeAPI, cluster: Cluster) -> None:
    await cluster.running()
    owner = owner_of(cluster.vm())
    await api.put(MIGRATIONS, a_finished_migration(200, {**owner, "uid": "of-an-earlier-machine"}))
    waits = a_finished_migration(0, owner, labels={"kubevirt.io/evicted-pod": "some-pod"})
    waits["status"]["endTime"] = "2999-01-01T00:00:00Z"
    asked = len(api.requests)
    await api.put(MIGRATIONS, waits)
    for number in range(1, 101):
        await api.put(MIGRATIONS, a_finished_migration(number, owner))
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update(podIP="10.0.0.2"))
    kept = ["old-000", *(f"old-{number:03}" for number in range(96, 101)), "old-200"]
    await cluster.until(lambda: left(api) == kept, "deletion of the older ones")
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update(podIP="10.0.0.3"))
    await asyncio.sleep(0.2)
    assert left(api) == kept
    about = [(method, path) for method, path, query in api.requests[asked:] if "/migrations" in path and query.get("watch") != "true"]
    assert {method for method, _ in about} == {"DELETE"}
    assert len(about) == 95
    options = [body for method, path, body in api.writes if method == "DELETE" and "/migrations" in path]
    assert all(each["preconditions"].keys() == {"uid", "resourceVersion"} for each in options)


async def test_the_oldest_goes_when_another_one_is_over(api: FakeAPI, cluster: Cluster) -> None:
    source = await cluster.running()
    owner = owner_of(cluster.vm())
    for number in range(1, 6):
        await api.put(MIGRATIONS, a_finished_migration(number, owner))
    made = a_migration("new")
    made["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    await api.put(MIGRATIONS, made)
    await phase_is(cluster, "new", "Scheduling")
    assert len(left(api)) == 6
    target = names.target_pod_name("testvm", uid_of(api.get(MIGRATIONS, "ns", "new")))
    await api.remove(PODS, "ns", target)
    await cluster.until(lambda: left(api) == ["new", *(f"old-{number:03}" for number in range(2, 6))], "deletion of the oldest")
    assert cluster.vm()["status"]["podName"] == name_of(source)


async def test_secret_missing_at_the_target_is_reported_by_field(api: FakeAPI, cluster: Cluster) -> None:
    await cluster.running()
    disk = {"type": "CloudInitNoCloud", "source": {"userDataSecretRef": {"name": "user"}}}
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["spec"]["domain"].update(devices={"disks": [disk]}))
    await api.put(MIGRATIONS, a_migration("move"))
    await phase_is(cluster, "move", "Scheduling")
    target = api.get(PODS, "ns", api.get(MIGRATIONS, "ns", "move")["status"]["targetPod"])
    said = {
        "metadata": {"name": "of-the-kubelet", "namespace": "ns"},
        "involvedObject": {"uid": uid_of(target)},
        "reason": "FailedMount",
        "message": 'MountVolume.SetUp failed for volume "disk-0" : secret "user" not found',
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    await api.put(EVENTS, said)

    def bind(obj: dict[str, Any]) -> None:
        obj["spec"]["nodeName"] = "node2"
        since = times.to_rfc3339(datetime.now(UTC) - timedelta(seconds=5))
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since}
        obj["status"] = {"phase": "Pending", "conditions": [bound]}

    await api.edit(PODS, "ns", name_of(target), bind)
    words = "spec.domain.devices.disks[0].source.userDataSecretRef: Secret user not found"
    await cluster.until(lambda: words in api.get(MIGRATIONS, "ns", "move")["status"]["message"], "what the target's pod waits for")
    await cluster.until(lambda: "SecretNotFound" in cluster.events(), "event")


@pytest.mark.parametrize("requeueing", [Times(back_off=(1, 1))])
async def test_broken_connection_is_retried_in_another_pod(api: FakeAPI, cluster: Cluster) -> None:
    source = await cluster.running()
    await api.put(MIGRATIONS, a_migration("move"))
    await phase_is(cluster, "move", "Scheduling")

    def status() -> dict[str, Any]:
        return dict(api.get(MIGRATIONS, "ns", "move")["status"])

    async def run_target() -> str:
        name = str(status()["targetPod"])
        await cluster.start_pod(api.get(PODS, "ns", name), "node2")
        await phase_is(cluster, "move", "PreparingTarget")
        return name

    async def breaks() -> None:
        def write(obj: dict[str, Any]) -> None:
            stamp = {"phase": "Running", "time": times.to_rfc3339(datetime.now(UTC))}
            obj["status"] |= {"phase": "Running", "phaseTransitionTimestamps": [*obj["status"]["phaseTransitionTimestamps"], stamp]}
            obj["status"]["attempts"] = migration_attempts.failed(obj, "ConnectionBroken", "it broke", datetime.now(UTC))

        await api.edit(MIGRATIONS, "ns", "move", write)

    async def ends(name: str) -> None:
        await cluster.until(lambda: api.get(PODS, "ns", name)["metadata"].get("deletionTimestamp"), "a deletion")
        assert api.get(PODS, "ns", name)["metadata"]["deletionGracePeriodSeconds"] == migration_retries.GRACE_SECONDS
        await asyncio.sleep(0.2)
        assert (status()["phase"], name in str(status()["message"])) == ("Running", True)
        await cluster.end_pod(api.get(PODS, "ns", name), 1, "crashed: QEMU")
        await api.remove(PODS, "ns", name)

    first = await run_target()
    assert status()["attempt"] == 1
    await breaks()
    await ends(first)
    await cluster.until(lambda: status()["attempt"] == 2, "a second attempt")
    assert (status()["phase"], status()["attempts"][0]["targetPod"]) == ("Pending", first)
    assert first not in {name_of(each) for each in api.all(PODS)}
    await phase_is(cluster, "move", "Scheduling")
    second = await run_target()
    assert second not in {first, name_of(source)}
    await breaks()
    await ends(second)
    await cluster.until(lambda: status()["attempt"] == 3, "a third attempt")
    await phase_is(cluster, "move", "Scheduling")
    third = await run_target()
    await breaks()
    await phase_is(cluster, "move", "Failed")
    assert status()["message"] == "it broke; this was the last of 3 attempts"
    await cluster.until(lambda: api.get(PODS, "ns", third)["metadata"].get("deletionTimestamp"), "the deletion of the last target")
    assert [name_of(each) for each in api.all(PODS) if "deletionTimestamp" not in each["metadata"]] == [name_of(source)]
    assert cluster.events().count("AttemptFailed") == 2


def is_scheduled(cluster: Cluster, name: str) -> bool:
    return cluster.phase(name) == "Scheduled"


async def machines(cluster: Cluster, *found: str, node: str = "node1") -> None:
    for name in found:
        await cluster.api.put(VMS, a_vm(name))
        await cluster.start_pod(await cluster.pod(name=name), node)
        await cluster.until(partial(is_scheduled, cluster, name), f"{name} Scheduled")
        await cluster.report_running(name)


async def ask(api: FakeAPI, machine: str, *, ago: float = 0, **metadata: Any) -> None:
    made = a_migration(f"move-{machine}", machine)
    made["metadata"] |= {"creationTimestamp": times.to_rfc3339(datetime.now(UTC) - timedelta(seconds=ago)), **metadata}
    await api.put(MIGRATIONS, made)


def targets(api: FakeAPI) -> list[str]:
    return sorted(
        each["metadata"]["labels"][names.VM_NAME_LABEL] for each in api.all(PODS) if names.MIGRATION_LABEL in each["metadata"]["labels"]
    )


def said(api: FakeAPI, machine: str) -> str:
    found = api.get(MIGRATIONS, "ns", f"move-{machine}").get("status") or {}
    reasons = [each["reason"] for each in found.get("conditions") or () if each["type"] == "Succeeded"]
    return f"{found.get('phase')} {' '.join(reasons)}: {found.get('message')}"


async def fails(api: FakeAPI, machine: str) -> None:
    await api.remove(PODS, "ns", names.target_pod_name(machine, uid_of(api.get(MIGRATIONS, "ns", f"move-{machine}"))))


@pytest.mark.parametrize("requeueing", [Times(queue=3600)])
async def test_two_leave_a_node_and_the_others_wait_for_their_turn(api: FakeAPI, cluster: Cluster) -> None:
    await machines(cluster, "a", "b", "c", "d")
    await machines(cluster, "elsewhere", node="node2")
    for number, name in enumerate(("a", "b", "c", "d")):
        await ask(api, name, ago=60 - number)
    await ask(api, "elsewhere")
    await cluster.until(lambda: targets(api) == ["a", "b", "elsewhere"], "three targets")
    await cluster.until(lambda: said(api, "c") == "Pending Queued: 2 migrations are leaving node node1; 1st in the queue", "c waits")
    await cluster.until(lambda: said(api, "d") == "Pending Queued: 2 migrations are leaving node node1; 2nd in the queue", "d waits")
    await cluster.until(lambda: cluster.events().count("Queued") == 2, "an Event of each")

    await fails(api, "a")
    await cluster.until(lambda: targets(api) == ["b", "c", "elsewhere"], "the next one's target")
    await cluster.until(lambda: said(api, "d").endswith("1st in the queue"), "d is the next")
    assert said(api, "a").startswith("Failed")
    await cluster.until(lambda: "MigrationFailed" in cluster.events(), "the Event of the end")
    assert cluster.events().count("Queued") == 2

    await api.edit(MIGRATIONS, "ns", "move-d", lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    await cluster.until(lambda: "move-d" not in left(api), "the end of one that waits")
    assert targets(api) == ["b", "c", "elsewhere"]


class SlowAPI(FakeAPI):
    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.asked = 0

    async def _create(self, collection: str, namespace: str, obj: dict[str, Any]) -> dict[str, Any]:
        if names.MIGRATION_LABEL in (obj["metadata"].get("labels") or {}):
            self.asked += 1
            await self.go_on.wait()
        return await super()._create(collection, namespace, obj)


async def test_limits_hold_while_started_migrations_are_unseen() -> None:
    api = SlowAPI()
    async with working(api, "--no-leader-elect", "--migrations-per-node=3", "--migrations-per-cluster=2"):
        cluster = Cluster(api)
        await machines(cluster, "a", "b", "c", "d", "e", "f")
        for name in "abcde":
            await ask(api, name)
        await cluster.until(lambda: api.asked == 2 and all("Queued" in said(api, each) for each in "cde"), "two targets that are made")
        assert said(api, "e") == "Pending Queued: 2 migrations are in progress in the cluster; 3rd in the queue"
        await ask(api, "f")
        await api.edit(MIGRATIONS, "ns", "move-f", lambda obj: obj["spec"].update(priority=100))
        await cluster.until(lambda: "; 1st in the queue" in said(api, "f"), "f waits")
        assert api.asked == 2
        api.go_on.set()
        await cluster.until(lambda: targets(api) == ["a", "b"], "two targets")
        await asyncio.sleep(0.2)
        assert api.asked == 2


async def test_refused_target_delays_no_other_migration(api: FakeAPI) -> None:
    def refuse(collection: str, obj: dict[str, Any]) -> None:
        labels = obj["metadata"].get("labels") or {}
        if collection == PODS and names.MIGRATION_LABEL in labels and labels[names.VM_NAME_LABEL] == "a":
            raise errors.Forbidden("exceeded quota")

    api.admit = refuse
    async with working(api, "--no-leader-elect", "--migrations-per-cluster=1"):
        cluster = Cluster(api)
        await machines(cluster, "a", "b")
        await ask(api, "a", ago=60)
        await cluster.until(lambda: said(api, "a") == "Pending FailedCreate: exceeded quota", "a refused")
        await ask(api, "b", ago=50)
        await cluster.until(lambda: targets(api) == ["b"], "the other's target")


async def test_migration_without_its_pod_delays_no_other(api: FakeAPI) -> None:
    async with working(api, "--no-leader-elect", "--migrations-per-cluster=1"):
        cluster = Cluster(api)
        await machines(cluster, "a", "b")
        await api.edit(VMS, "ns", "a", lambda obj: obj["status"].update(podUID="another", podName="another"))
        await ask(api, "a", ago=60)
        await ask(api, "b", ago=50)
        await cluster.until(lambda: targets(api) == ["b"], "the other's target")


async def test_guests_of_a_node_that_is_emptied_go_before_others(api: FakeAPI) -> None:
    async with working(api, "--no-leader-elect", "--migrations-per-cluster=1"):
        cluster = Cluster(api)
        await machines(cluster, "under-way", "by-hand", node="node2")
        await machines(cluster, "drained")
        await ask(api, "under-way", ago=60)
        await cluster.until(lambda: targets(api) == ["under-way"], "the first target")
        await api.edit(NODES, "", "node1", lambda obj: obj.update(spec={"unschedulable": True}))
        await ask(api, "by-hand", ago=50)
        await cluster.until(lambda: "1st in the queue" in said(api, "by-hand"), "by-hand waits")
        await ask(api, "drained", ago=40, labels={"kubevirt.io/evicted-pod": "x"})
        await cluster.until(lambda: "Queued" in said(api, "drained"), "drained waits")
        await fails(api, "under-way")
        await cluster.until(lambda: targets(api) == ["drained"], "the target of the drain")
        assert said(api, "by-hand").startswith("Pending Queued")


async def test_queued_drain_migrations_end_on_uncordon(api: FakeAPI) -> None:
    drain, evicted = ({"kubevirt.io/evicted-pod": "x", **mark} for mark in ({"kubevirt.io/drain": "true"}, {}))
    left = {"annotations": {"kubevirt.io/evicted-from": "node1"}}
    async with working(api, "--no-leader-elect", "--migrations-per-cluster=1"):
        cluster = Cluster(api)
        await machines(cluster, "under-way", "waits", "by-hand", "elsewhere")
        await api.edit(NODES, "", "node1", lambda obj: obj.update(spec={"unschedulable": True}))
        await ask(api, "under-way", ago=40, labels=drain, **left)
        await cluster.until(lambda: targets(api) == ["under-way"], "the first target")
        await ask(api, "waits", ago=30, labels=drain, **left)
        await cluster.until(lambda: "Queued" in said(api, "waits"), "it waits")
        await ask(api, "by-hand", ago=20)
        await ask(api, "elsewhere", ago=10, labels=evicted, **left)
        await cluster.until(lambda: "Queued" in said(api, "by-hand") and "Queued" in said(api, "elsewhere"), "the others wait")
        await api.edit(NODES, "", "node1", lambda obj: obj.update(spec={}))
        over = "Failed DrainEnded: node node1 was uncordoned before the migration began, which ended its drain"
        await cluster.until(lambda: said(api, "waits") == over, "its end")
        await cluster.until(lambda: "DrainEnded" in cluster.events(), "the Event of it")
        assert targets(api) == ["under-way"]
        assert [said(api, each).split(":")[0] for each in ("by-hand", "elsewhere")] == ["Pending Queued"] * 2
        assert said(api, "under-way").startswith("Scheduling")


class SilentNodes(FakeAPI):
    def _event(self, request: web.Request, *change: Any) -> tuple[str, dict[str, Any]] | None:
        return None if request.path == NODES and "watch" in request.query else super()._event(request, *change)


async def test_drain_migration_starts_before_its_cordon_is_seen() -> None:
    api = SilentNodes()
    async with working(api, "--no-leader-elect"):
        cluster = Cluster(api)
        await machines(cluster, "a")
        await api.edit(NODES, "", "node1", lambda obj: obj.update(spec={"unschedulable": True}))
        labels = {"kubevirt.io/evicted-pod": "x", "kubevirt.io/drain": "true"}
        await ask(api, "a", labels=labels, annotations={"kubevirt.io/evicted-from": "node1"})
        await cluster.until(lambda: targets(api) == ["a"], "its target")
