from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import NamespacedName, Object, condition, controller_of, dig, is_deleting, labels_of, name_of, uid_of
from apiserver.apis.virt.places.names import launcher_pod_name
from apiserver.apis.virt.places.resources import REPLICA_SETS, VIRTUAL_MACHINES
from apiserver.client.rest import Client
from controller.manager.loops import SOURCES
from controller.reconcilers.applying import REFUSED_SECONDS
from controller.reconcilers.indexes import Informers
from controller.reconcilers.replica_sets.reconciler import ReplicaSets
from controller.runtime.clock import SystemClock
from controller.runtime.reconciling import Result
from controller.runtime.recorder import Recorder
from tests.component.controller.test_controller import CLAIMS, PODS, VMS, Cluster, a_vm, working
from tests.fakes.aggregating import AggregatingAPI
from tests.fakes.kubeapi import FakeAPI, Key
from tests.own_time import promptly
from tests.unit.controller.reconcilers.replica_sets.builders import a_template

WEB = {"app": "web"}
APPLY = "application/apply-patch+yaml"


def a_manifest(name: str = "web", *, replicas: int = 3, **spec: Any) -> Object:
    return {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "VirtualMachineReplicaSet",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": WEB}, "template": a_template(WEB), **spec},
    }


def a_machine(name: str, labels: dict[str, str]) -> Object:
    return {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "labels": labels},
        "spec": a_template(labels)["spec"],
    }


class World:
    def __init__(self, api: AggregatingAPI, client: Client) -> None:
        self.api, self.client = api, client

    @property
    def created(self) -> list[str]:
        return [path for _, path in self.api.written if path.endswith("/replicate")]

    async def set(self, name: str = "web") -> Object:
        return await self.client.get(REPLICA_SETS, name, "ns")

    async def machines(self) -> list[Object]:
        return [each for each in (await self.client.list(VIRTUAL_MACHINES, "ns"))["items"] if not is_deleting(each)]

    async def until(self, claim: Callable[[Object, list[Object]], Any], name: str = "web") -> list[Object]:
        found, machines = {}, []
        with suppress(TimeoutError):
            async with asyncio.timeout(20):
                while True:
                    found, machines = await self.set(name), await self.machines()
                    if claim(found, machines):
                        return machines
                    await asyncio.sleep(0.02)
        raise AssertionError(f"the set stayed {found.get('status')}, with {[name_of(each) for each in machines]}")

    async def settled(self, count: int, name: str = "web") -> list[Object]:
        return await self.until(lambda found, all_: len(owned(found, all_)) == count == dig(found, "status", "replicas"), name)

    async def scale(self, replicas: int) -> None:
        await self.client.patch(REPLICA_SETS, "web", {"spec": {"replicas": replicas}}, "ns", subresource="scale")

    async def apply(self, obj: Object) -> Object:
        return await self.client.patch(REPLICA_SETS, name_of(obj), obj, "ns", content_type=APPLY, field_manager="gitops")

    async def make_ready(self, vm: Object) -> None:
        name, pod = name_of(vm), launcher_pod_name(name_of(vm), uid_of(vm), 1)
        await promptly(lambda: (PODS, "ns", pod) in self.api.objects, 20)
        await Cluster(self.api).start_pod(self.api.get(PODS, "ns", pod))
        machines = await self.until(lambda _, all_: dig(named(name, all_), "status", "phase") == "Scheduled")
        ready = {"type": "Ready", "status": "True", "reason": "GuestRunning", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        attempts = [{**dig(named(name, machines), "status", "attempts")[0], "runningTime": "2026-01-01T00:00:00Z"}]
        status = {"phase": "Running", "attempts": attempts, "conditions": [ready]}
        await self.client.patch(VIRTUAL_MACHINES, name, {"status": status}, "ns", subresource="status")

    async def patch(self, vm: Object, metadata: Object) -> None:
        await self.client.patch(VIRTUAL_MACHINES, name_of(vm), {"metadata": metadata}, "ns")

    async def end(self, name: str, ended: str) -> None:
        for pod in self.api.all(PODS):
            await self.api.remove(PODS, "ns", name_of(pod))
        attempt = {"number": 1, "podName": "p", "startTime": ended, "runningTime": ended, "endTime": ended, "result": "Succeeded"}
        status = {"phase": "Succeeded", "attempt": 1, "attempts": [attempt]}
        await self.client.patch(VIRTUAL_MACHINES, name, {"status": status}, "ns", subresource="status")


def owned(found: Object, machines: list[Object]) -> list[Object]:
    return [each for each in machines if (controller_of(each) or {}).get("uid") == uid_of(found)]


def named(name: str, machines: list[Object]) -> Object:
    return next(each for each in machines if name_of(each) == name)


class LabelledFirst(AggregatingAPI):
    """An API where a user labels the first machine just before a set deletes it."""

    labelled = ""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        collection, _, name = request.path.rpartition("/")
        if request.method == "DELETE" and collection == VIRTUAL_MACHINES.path("ns") and not self.labelled and self._behind is not None:
            self.labelled = name
            async with Client(self._behind, user_agent="test") as user:
                await user.patch(VIRTUAL_MACHINES, name, {"metadata": {"labels": {"app": "debug"}}}, "ns")
        return await super()._handle(request)


class ProtectedClaims(AggregatingAPI):
    """An API that protects claims, as Kubernetes does, and once ``silent`` tells no changes of them."""

    silent = False

    async def _store(self, key: Key, obj: Object) -> Object:
        if key[0] == CLAIMS:
            obj["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
        return await super()._store(key, obj)

    async def _log(self, kind: str, key: Key, obj: Object, old: Object | None = None) -> None:
        if not self.silent or key[0] != CLAIMS:
            await super()._log(kind, key, obj, old)


@asynccontextmanager
async def world(directory: Path, api: AggregatingAPI | None = None) -> AsyncIterator[World]:
    api = api or AggregatingAPI()
    async with api.aggregating(directory) as ours, working(api, "--no-leader-elect"), Client(ours, user_agent="test") as client:
        yield World(api, client)


async def test_a_set_creates_scales_and_replaces_its_machines(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        await cluster.client.create(REPLICA_SETS, a_manifest(), "ns")
        machines = await cluster.settled(3)
        assert all(name_of(each).startswith("web-") and labels_of(each) == WEB for each in machines)
        assert {controller["blockOwnerDeletion"] for each in machines if (controller := controller_of(each))} == {True}
        assert len(cluster.created) == 3
        assert not [path for method, path in cluster.api.written if method == "POST" and path.endswith("/virtualmachines")]

        await cluster.scale(5)
        await cluster.settled(5)
        scale = await cluster.client.request("GET", REPLICA_SETS.path("ns", "web", "scale"))
        assert scale["status"] == {"replicas": 5, "selector": "app=web"}
        await cluster.scale(2)
        machines = await cluster.settled(2)
        await cluster.client.delete(VIRTUAL_MACHINES, name_of(machines[0]), "ns")
        replaced = await cluster.until(lambda _, all_: len(all_) == 2 and name_of(machines[0]) not in map(name_of, all_))
        assert name_of(machines[1]) in map(name_of, replaced)


async def test_machines_are_adopted_and_released_by_their_labels(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        for name in ("one", "two"):
            await cluster.client.create(VIRTUAL_MACHINES, a_machine(name, WEB), "ns")
        await cluster.client.create(VIRTUAL_MACHINES, a_machine("other", {"app": "db"}), "ns")
        await cluster.client.create(REPLICA_SETS, a_manifest(), "ns")
        machines = await cluster.settled(3)
        of_set = owned(await cluster.set(), machines)
        assert {"one", "two"} < set(map(name_of, of_set))

        one = next(each for each in machines if name_of(each) == "one")
        await cluster.patch(one, {"labels": {"app": "debug"}})
        machines = await cluster.until(lambda found, all_: len(owned(found, all_)) == 3 and len(all_) == 5)
        assert controller_of(next(each for each in machines if name_of(each) == "one")) is None

        await cluster.patch(one, {"labels": WEB})
        await cluster.until(lambda found, all_: len(owned(found, all_)) == 3 and len(all_) == 4)


async def test_a_finished_machine_is_adopted_when_it_starts_again(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        one = await cluster.client.create(VIRTUAL_MACHINES, a_machine("one", WEB), "ns")
        await promptly(lambda: cluster.api.all(PODS), 20)
        await cluster.end("one", times.to_rfc3339(datetime.now(UTC) - timedelta(hours=2)))
        await cluster.client.create(REPLICA_SETS, a_manifest(replicas=1), "ns")
        await cluster.settled(1)
        assert [controller_of(each) for each in await cluster.machines() if uid_of(each) == uid_of(one)] == [None]

        await cluster.client.request("PUT", VIRTUAL_MACHINES.path("ns", "one", "start"))
        await cluster.until(lambda found, all_: len(owned(found, all_)) == len(all_) == 1)


async def test_a_machine_taken_out_of_its_set_is_not_deleted(tmp_path: Path) -> None:
    api = LabelledFirst()
    async with world(tmp_path, api) as cluster:
        await cluster.client.create(REPLICA_SETS, a_manifest(), "ns")
        await cluster.settled(3)
        await cluster.scale(1)
        machines = await cluster.until(lambda found, all_: len(owned(found, all_)) == 1 and len(all_) == 2)
        assert [controller_of(each) for each in machines if name_of(each) == api.labelled] == [None]


async def test_placeholders_differ_between_machines(tmp_path: Path) -> None:
    data = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data-$(vm.suffix)"}}
    manifest = a_manifest()
    manifest["spec"]["template"]["spec"]["domain"]["devices"] = {"disks": [data]}
    async with world(tmp_path) as cluster:
        await cluster.client.create(REPLICA_SETS, manifest, "ns")
        machines = await cluster.settled(3)
        claims = {dig(each, "spec", "domain", "devices", "disks")[0]["source"]["name"] for each in machines}
        assert claims == {f"data-{name_of(each).removeprefix('web-')}" for each in machines}
        assert len(claims) == 3


async def test_ordinals_name_the_machines_and_the_highest_go_first(tmp_path: Path) -> None:
    manifest = a_manifest(ordinals={"start": 1})
    manifest["spec"]["template"]["spec"]["domain"]["devices"] = {
        "disks": [{"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data-$(vm.ordinal)"}}]
    }
    async with world(tmp_path) as cluster:
        await cluster.client.create(VIRTUAL_MACHINES, a_machine("web-3", WEB), "ns")
        await cluster.client.create(VIRTUAL_MACHINES, a_machine("web-x", WEB), "ns")
        await cluster.client.create(REPLICA_SETS, manifest, "ns")
        machines = await cluster.settled(3)
        assert sorted(map(name_of, owned(await cluster.set(), machines))) == ["web-1", "web-2", "web-3"]
        (second,) = (each for each in machines if name_of(each) == "web-2")
        assert dig(second, "spec", "domain", "devices", "disks")[0]["source"]["name"] == "data-2"
        await cluster.client.delete(VIRTUAL_MACHINES, "web-1", "ns")
        await cluster.until(lambda _, all_: len({*map(name_of, all_)} & {"web-1", "web-2", "web-3"}) == 3)
        await cluster.scale(1)
        assert [name_of(each) for each in owned(await cluster.set(), await cluster.settled(1))] == ["web-1"]


CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def a_pool_with_claims() -> Object:
    return a_manifest(
        replicas=2,
        ordinals={},
        volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": CLAIM}],
        persistentVolumeClaimRetentionPolicy={"whenScaled": "Delete"},
    )


async def test_claims_are_made_first_and_only_excess_ones_deleted(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        await cluster.api.put(CLAIMS, {"metadata": {"name": "data-web-2", "namespace": "ns"}, "spec": CLAIM})
        await cluster.client.create(REPLICA_SETS, a_pool_with_claims(), "ns")
        await cluster.settled(2)
        written = [path for method, path, _ in cluster.api.requests if method == "POST" and path.endswith(("replicate", "claims"))]
        assert [path.rpartition("/")[2] for path in written] == ["persistentvolumeclaims", "replicate"] * 2
        await cluster.scale(3)
        await cluster.settled(3)

        await cluster.client.patch(VIRTUAL_MACHINES, "web-1", {"metadata": {"labels": {"app": "debug"}}}, "ns")
        await cluster.scale(1)
        await cluster.until(lambda found, all_: len(owned(found, all_)) == 1)
        await asyncio.sleep(0.5)
        left = {name_of(each) for each in cluster.api.all(CLAIMS)}
        assert left == {"data-web-0", "data-web-1", "data-web-2"}  # a machine uses the second; the set did not make the third
        await cluster.client.patch(VIRTUAL_MACHINES, "web-1", {"metadata": {"labels": WEB}}, "ns")
        await promptly(lambda: {name_of(each) for each in cluster.api.all(CLAIMS)} == {"data-web-0", "data-web-2"}, 20)


async def test_no_claim_of_a_set_that_has_grown_meanwhile_is_deleted(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        await cluster.client.create(REPLICA_SETS, a_pool_with_claims(), "ns")
        second = named("web-1", await cluster.settled(2))
        await cluster.patch(second, {"finalizers": ["example.com/hold"]})
        await cluster.scale(1)
        await cluster.until(lambda found, all_: len(all_) == dig(found, "status", "replicas") == 1)
        cluster.api.lost_watch = REPLICA_SETS.path()
        await cluster.scale(2)
        asked: tuple[str, str, dict[str, str]] = ("GET", REPLICA_SETS.path("ns", "web"), {})
        before = cluster.api.requests.count(asked)
        await cluster.patch(second, {"finalizers": None})
        await promptly(lambda: cluster.api.requests.count(asked) > before, 20)
        await asyncio.sleep(0.2)
        assert {name_of(each) for each in cluster.api.all(CLAIMS)} == {"data-web-0", "data-web-1"}


async def test_a_machine_waits_until_its_old_claim_is_gone(tmp_path: Path) -> None:
    api = ProtectedClaims()
    async with world(tmp_path, api) as cluster:
        await cluster.client.create(REPLICA_SETS, a_pool_with_claims(), "ns")
        await cluster.settled(2)
        api.silent = True
        await cluster.scale(1)
        await promptly(lambda: is_deleting(api.get(CLAIMS, "ns", "data-web-1")), 20)
        await cluster.scale(2)
        machines = await cluster.until(lambda found, _: dig(found, "status", "observedGeneration") == 3)
        assert list(map(name_of, machines)) == ["web-0"]
        api.silent = False
        await api.remove(CLAIMS, "ns", "data-web-1")
        await cluster.settled(2)
        assert not is_deleting(api.get(CLAIMS, "ns", "data-web-1"))


def template_of(edit: Object, **spec: Any) -> Object:
    return {"spec": {"template": {"metadata": {"annotations": edit}}, **spec}}


def revisions_of(machines: list[Object]) -> list[str]:
    return [labels_of(each)["kubevirt.io/revision"] for each in sorted(machines, key=name_of)]


async def test_machines_get_an_edit_of_the_template_and_its_undo(tmp_path: Path) -> None:
    manifest = a_manifest(replicas=2, ordinals={}, updateStrategy={"type": "OnDelete"})
    manifest["spec"]["template"]["spec"]["runStrategy"] = "Halted"
    async with world(tmp_path) as cluster:
        await cluster.client.create(REPLICA_SETS, manifest, "ns")
        first, _ = revisions_of(await cluster.settled(2))
        await cluster.client.patch(REPLICA_SETS, "web", template_of({"a": "1"}), "ns")
        second = dig(await cluster.set(), "status", "revisions")[-1]["name"]
        await cluster.client.delete(VIRTUAL_MACHINES, "web-1", "ns")
        await cluster.until(lambda _, all_: revisions_of(all_) == [first, second])
        await cluster.until(lambda found, _: dig(found, "status", "updatedReplicas") == 1)
        assert dig(await cluster.set(), "status", "currentRevision") == first

        await cluster.client.patch(REPLICA_SETS, "web", {"spec": {"updateStrategy": {"type": "RollingUpdate"}}}, "ns")
        machines = await cluster.until(lambda _, all_: revisions_of(all_) == [second, second])
        assert [dig(each, "metadata", "annotations", "a") for each in machines] == ["1", "1"]
        await cluster.until(lambda found, _: dig(found, "status", "currentRevision") == second)

        await cluster.client.patch(REPLICA_SETS, "web", template_of({"a": None}, updateStrategy={"rollingUpdate": {"partition": 1}}), "ns")
        await cluster.until(lambda _, all_: revisions_of(all_) == [second, first])
        await cluster.client.delete(VIRTUAL_MACHINES, "web-0", "ns")
        machines = await cluster.until(lambda _, all_: revisions_of(all_) == [second, first])
        found = await cluster.set()
        assert [(each["name"], each["revision"]) for each in dig(found, "status", "revisions")] == [(second, 2), (first, 3)]
        forged = {"status": {"revisions": None, "updatedReplicas": 2}}
        await cluster.client.patch(REPLICA_SETS, "web", forged, "ns", subresource="status")
        assert dig(await cluster.set(), "status", "revisions") == dig(found, "status", "revisions")


async def test_a_rollout_takes_a_percentage_of_the_machines(tmp_path: Path) -> None:
    def wanting(most: object) -> Object:
        return a_manifest(replicas=5, ordinals={}, updateStrategy={"rollingUpdate": {"maxUnavailable": most}})

    async with world(tmp_path) as cluster:
        for wrong in ("0%", "5 %", True, 1.5, 10**40):
            with pytest.raises(errors.Invalid, match="maxUnavailable"):
                await cluster.apply(wanting(wrong))
        applied = await cluster.apply(wanting("50%"))
        assert dig(applied, "spec", "updateStrategy") == {"rollingUpdate": {"maxUnavailable": "50%"}}
        for each in await cluster.settled(5):
            await cluster.make_ready(each)
        await cluster.until(lambda found, _: dig(found, "status", "readyReplicas") == 5)
        await cluster.client.patch(REPLICA_SETS, "web", template_of({"kubevirt.io/restartedAt": "now"}), "ns")
        await cluster.until(lambda found, _: dig(found, "status", "updatedReplicas") == 2)
        await asyncio.sleep(0.5)
        old, new = (each["name"] for each in dig(await cluster.set(), "status", "revisions"))
        assert revisions_of(await cluster.machines()) == [old, old, old, new, new]
        assert (await cluster.apply(wanting(1)))["spec"]["updateStrategy"] == {"rollingUpdate": {"maxUnavailable": 1}}


async def test_a_paused_set_waits(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        await cluster.client.create(REPLICA_SETS, a_manifest(paused=True), "ns")
        await cluster.until(lambda found, _: condition(dig(found, "status", "conditions"), "ReplicaPaused"))
        assert await cluster.machines() == []
        await cluster.client.patch(REPLICA_SETS, "web", {"spec": {"paused": False}}, "ns")
        await cluster.settled(3)
        assert condition(dig(await cluster.set(), "status", "conditions"), "ReplicaPaused") is None


async def test_a_refused_machine_is_told_in_the_status(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        cluster.api.refused["replicate"] = errors.Forbidden('virtualmachines "web-1" is forbidden: exceeded quota')
        await cluster.client.create(REPLICA_SETS, a_manifest(), "ns")
        await cluster.until(lambda found, _: reason(found) == "FailedCreate")
        asked = [path for method, path, _ in cluster.api.requests if path.endswith("/replicate")]
        assert len(asked) <= 2
        cluster.api.refused.clear()
        await cluster.scale(2)
        await cluster.settled(2)
        await cluster.until(lambda found, _: reason(found) == "")


def reconciler(client: Client) -> tuple[ReplicaSets, Informers]:
    informers = Informers(**{name: source.informer(client, "kubevirt") for name, source in SOURCES.items()})
    clock = SystemClock()
    return ReplicaSets(client, Recorder(client, "test", clock), clock, informers), informers


async def test_owners_of_a_machine_changed_since_the_look_stay() -> None:
    api = FakeAPI()
    seen = await api.put(VMS, {"metadata": {"name": "one", "namespace": "ns", "labels": WEB}})
    await api.edit(VMS, "ns", "one", lambda found: found["metadata"].update(labels={"app": "debug"}))
    async with api.serving() as config, Client(config, user_agent="test") as client:
        sets, _ = reconciler(client)
        with pytest.raises(errors.Conflict):
            await sets._adopt({**a_manifest(), "metadata": {"name": "web", "namespace": "ns", "uid": "u"}}, seen)
    assert "ownerReferences" not in api.get(VMS, "ns", "one")["metadata"]


async def test_each_batch_of_writes_is_twice_the_last() -> None:
    batches: list[list[int]] = [[]]

    async def write(number: int) -> None:
        batches[-1].append(number)
        await asyncio.sleep(0)
        if number == batches[-1][-1]:
            batches.append([])

    async with FakeAPI().serving() as config, Client(config, user_agent="test") as client:
        sets, _ = reconciler(client)
        await sets._in_batches(a_manifest(), "FailedCreate", range(8), write)
    assert [len(each) for each in batches] == [1, 2, 4, 1, 0]


async def test_a_refused_machine_is_tried_again_later() -> None:
    def refuse(_path: str, _obj: Object) -> None:
        raise errors.Forbidden("exceeded quota")

    api = FakeAPI()
    api.admit = refuse
    await api.put(REPLICA_SETS.path(), {**a_manifest(replicas=1), "metadata": {"name": "web", "namespace": "ns"}})
    async with api.serving() as config, Client(config, user_agent="test") as client, asyncio.TaskGroup() as tasks:
        sets, informers = reconciler(client)
        running = tasks.create_task(informers.replica_sets.run())
        await promptly(lambda: informers.replica_sets.get("ns", "web"), 20)
        assert await sets.reconcile(NamespacedName("ns", "web")) == Result(REFUSED_SECONDS)
        assert reason(api.get(REPLICA_SETS.path(), "ns", "web")) == "FailedCreate"
        running.cancel()


def reason(found: Object) -> str:
    return str((condition(dig(found, "status", "conditions"), "ReplicaFailure") or {}).get("reason") or "")


async def test_lost_watch_events_make_no_machine_too_many(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        await cluster.client.create(REPLICA_SETS, a_manifest(), "ns")
        machines = await cluster.settled(3)
        cluster.api.lost_watch = VIRTUAL_MACHINES.path()
        for each in machines[:2]:
            await cluster.patch(each, {"finalizers": None})
            await cluster.client.delete(VIRTUAL_MACHINES, name_of(each), "ns")
        for name in ("one", "two"):
            await cluster.client.create(VIRTUAL_MACHINES, a_machine(name, WEB), "ns")
        await cluster.scale(4)
        machines = await cluster.until(lambda found, all_: len(owned(found, all_)) == 4)
        assert {name_of(machines[0]), name_of(machines[1])} == {"one", "two"}
        assert len(cluster.created) == 4
        await cluster.scale(1)
        await cluster.until(lambda found, all_: len(owned(found, all_)) == 1)
        assert len(cluster.created) == 4


async def test_a_new_leader_counts_what_the_old_one_made(tmp_path: Path) -> None:
    api = AggregatingAPI()
    async with api.aggregating(tmp_path) as ours, Client(ours, user_agent="test") as client:
        cluster = World(api, client)
        await client.create(REPLICA_SETS, a_manifest(replicas=20), "ns")
        async with working(api, "--no-leader-elect"):
            await cluster.until(lambda _, all_: len(all_) >= 3)
        async with working(api, "--no-leader-elect"):
            await cluster.settled(20)
        assert len(cluster.created) == 20


async def test_a_failed_template_is_retried_with_pauses(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        await cluster.client.create(REPLICA_SETS, a_manifest(replicas=1), "ns")
        (machine,) = await cluster.settled(1)
        ended = times.to_rfc3339(datetime.now(UTC))
        await cluster.end(name_of(machine), ended)
        await cluster.until(lambda found, _: reason(found) == "BackOff" and dig(found, "status", "finishedReplicas") == 1)
        assert len(cluster.created) == 1
        await cluster.until(lambda found, _: dig(found, "status", "replicas") == 1 and dig(found, "status", "finishedReplicas") == 1)
        assert len(cluster.created) == 2
        assert times.parse(ended) + timedelta(seconds=9) < datetime.now(UTC)


async def test_a_set_that_is_gone_adopts_no_machine(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        await cluster.client.create(REPLICA_SETS, a_manifest(replicas=1), "ns")
        await cluster.settled(1)
        cluster.api.lost_watch = REPLICA_SETS.path()
        await cluster.client.delete(REPLICA_SETS, "web", "ns")
        asked: tuple[str, str, dict[str, str]] = ("GET", REPLICA_SETS.path("ns", "web"), {})
        assert asked not in cluster.api.requests
        await cluster.client.create(VIRTUAL_MACHINES, a_machine("one", WEB), "ns")
        await promptly(lambda: asked in cluster.api.requests, 20)
        await asyncio.sleep(0.2)
        machines = await cluster.machines()
        assert [controller_of(each) for each in machines if name_of(each) == "one"] == [None]
        assert len(machines) == 2


class Before(FakeAPI):
    """A fake API of the previous version, which lacks VirtualMachineReplicaSets."""

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.path == REPLICA_SETS.path():
            raise errors.NotFound("the server could not find the requested resource")
        return await super()._serve(request)


async def test_machines_start_before_sets_are_served() -> None:
    api = Before()
    async with working(api, "--no-leader-elect"):
        cluster = Cluster(api)
        await api.put(VMS, a_vm())
        assert await cluster.pod()
