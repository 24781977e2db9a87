"""Edits that add one claim to several running machines, through real virt-apis and etcd, with kills of virt-api at each request to etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio

from apiserver.apis.meta.objects import dig
from apiserver.apis.virt.spec import hot_plug
from controller.reconcilers import settings
from controller.reconcilers.launcher_pods import launcher_pod as launcher_pods
from storage.etcd.store import EtcdStorage, Settings
from storage.memory import MemoryStorage
from storage.port import Delete, Storage
from tests.component.apiserver.conftest import Pki
from tests.component.apiserver.test_cut_verbs import CUTS, CutStorage, steady
from tests.component.apiserver.test_node_restriction import (
    BASE,
    MACHINE,
    RUNNING,
    SCHEDULED,
    VM,
    VM_STATUS,
    Cluster,
    Json,
    launcher_pod,
    serving,
)
from tests.contracts.test_served_versions import PODS
from tests.fakes.etcd_server import EtcdServer, etcd_server

__all__ = ["etcd_server"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

DISK: Final[Json] = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
LIVE: Final[Json] = {**RUNNING, "domain": {"state": "running", "liveChanges": list(hot_plug.KINDS)}}
OTHER: Final = VM.replace("vm1", "vm2")
ADMIN: Final = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")]
LOCKS: Final = "/registry/claims/"


def disks(*found: Json) -> Json:
    return {"spec": {"domain": {"devices": {"disks": list(found)}}}}


def waits(reason: str) -> Json:
    return {"status": {"volumeStatus": [{"name": "data", "claimName": "data", "phase": "Pending", "reason": reason}]}}


async def patch(through: Cluster, path: str, body: Json) -> tuple[int, Any]:
    return await through.ask("PATCH", path, body, ADMIN, kind="merge-patch+json")


def reserved(vm: Json) -> Any:
    return dig(vm, "status", "running", "reservedClaims")


async def empty(storage: Storage) -> None:
    await storage.commit([], [Delete(each.key) for each in (await storage.range("/registry/")).entries])


async def run_machines(cluster: Cluster, *others: Cluster) -> None:
    for number in (1, 2):
        machine = await cluster.admin("POST", f"{BASE}/virtualmachines", {**MACHINE, "metadata": {"name": f"vm{number}"}})
        for each in (cluster, *others):
            await each.kube.put(PODS, launcher_pod(machine, f"p{number}", f"uid-{number}"))
        attempts = [{**each, "podName": f"p{number}"} for each in LIVE["attempts"]]
        status = {**LIVE, "attempts": attempts, "podName": f"p{number}", "podUID": f"uid-{number}"}
        await cluster.put_status(f"{BASE}/virtualmachines/vm{number}/status", status)


async def test_of_two_edits_at_once_one_reserves_the_other_waits(pki: Pki, tmp_path: Path, etcd_server: EtcdServer) -> None:
    stores = [EtcdStorage(Settings((etcd_server.endpoint,))) for _ in range(2)]
    for each in ("one", "two"):
        (tmp_path / each).mkdir()
    async with serving(pki, tmp_path / "one", storage=stores[0]) as one:
        await empty(stores[0])
        async with serving(pki, tmp_path / "two", storage=stores[1]) as two:
            await empty(stores[0])
            await run_machines(two, one)
            for _ in range(6):
                async with asyncio.TaskGroup() as tasks:
                    edits = [tasks.create_task(patch(through, path, disks(DISK))) for through, path in ((one, VM), (two, OTHER))]
                answers = [each.result() for each in edits]
                assert [code for code, _ in answers] == [200, 200], answers
                vms = {path: await one.admin("GET", path) for path in (VM, OTHER)}
                assert sorted(map(str, map(reserved, vms.values()))) == ["None", "['data']"]
                first, second = sorted(vms, key=lambda path: reserved(vms[path]) is None)
                (lock,) = (await stores[0].range(LOCKS)).entries
                assert lock.value.decode().endswith(first.rpartition("/")[2])

                assert (await patch(two, f"{second}/status", waits("DiskInUse")))[0] == 200
                assert (await patch(two, first, disks()))[0] == 200
                assert (await stores[0].range(LOCKS)).entries == ()
                assert reserved((await patch(one, f"{second}/status", waits("PodNotRunning")))[1]) == ["data"]
                assert reserved((await patch(one, second, disks()))[1]) is None
                assert (await patch(one, f"{second}/status", {"status": {"volumeStatus": None}}))[0] == 200


async def test_node_may_write_what_makes_virt_api_reserve(pki: Pki, tmp_path: Path) -> None:
    async with serving(pki, tmp_path) as cluster:
        assert (await cluster.put_status(VM_STATUS, RUNNING, "node1"))[0] == 200
        assert reserved((await patch(cluster, VM, disks(DISK)))[1]) is None
        for found, kinds in ((["data"], ["disk"]), (None, []), (["data"], ["disk"])):
            body = {"status": {"domain": {"state": "running", "liveChanges": kinds}}}
            code, vm = await cluster.handler("node1", "PATCH", VM_STATUS, body, kind="merge-patch+json")
            assert (code, reserved(vm)) == (200, found), vm


class Case(NamedTuple):
    before: tuple[tuple[str, Json], ...]
    """Patches."""
    path: str
    body: Json
    locked: str
    """Holder of the lock afterwards."""


async def a_record(vm: Json, *clusters: Cluster) -> Json:
    """Make the disk's attachment pod, and return the patch that records it."""
    (disk,) = hot_plug.added(vm)
    pod = launcher_pods.attachment_pod(vm, disk, settings.Settings("launcher"))
    pod["metadata"]["uid"], pod["spec"]["nodeName"] = "2b0a1c1e-0000-4000-8000-000000000001", "node1"
    for each in clusters:
        await each.kube.put(PODS, pod)
    volume = {"attachPodName": pod["metadata"]["name"], "attachPodUID": pod["metadata"]["uid"]}
    return {"status": {"volumeStatus": [{"name": "data", "claimName": "data", "phase": "AttachedToNode", "hotplugVolume": volume}]}}


STARTS: Final = {"status": {**SCHEDULED, "phase": "Scheduling"}}
CASES: Final[Mapping[str, Case]] = {
    "reserve": Case((), VM, disks(DISK), "vm1"),
    "wait": Case(((OTHER, disks(DISK)),), VM, disks(DISK), "vm2"),
    "give up": Case(((VM, disks(DISK)),), VM, disks(), ""),
    "record": Case(((VM, disks(DISK)),), VM_STATUS, {}, "vm1"),
    "start": Case(((VM_STATUS, STARTS), (VM, disks(DISK)), (OTHER, disks(DISK))), VM_STATUS, {"status": {"phase": "Scheduled"}}, "vm1"),
}


@dataclass
class World:
    first: Cluster
    """Its requests to etcd are cut."""
    second: Cluster
    cutting: CutStorage
    storage: MemoryStorage

    async def begin(self, case: Case) -> Json:
        """Store the machines in the state before the patch, and return the patch."""
        self.cutting.disarm()
        await empty(self.storage)
        await run_machines(self.second, self.first)
        for path, body in case.before:
            code, answer = await patch(self.second, path, body)
            assert code == 200, answer
        return case.body or await a_record(await self.second.admin("GET", VM), self.first, self.second)

    async def state(self) -> tuple[list[str], dict[str, str]]:
        found = [await self.second.admin("GET", path) for path in (VM, OTHER)]
        locks = {each.key: each.value.decode().rpartition("/")[2] for each in (await self.storage.range(LOCKS)).entries}
        claimed = [vm["metadata"]["name"] for vm in found if reserved(vm)]
        assert [*locks.values()] == claimed or (not claimed and len(locks) <= 1)
        return [steady(each) for each in found], locks


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    storage = MemoryStorage()
    cutting = CutStorage(storage)
    async with serving(pki, tmp_path_factory.mktemp("one"), storage=cutting) as first:
        await empty(storage)
        async with serving(pki, tmp_path_factory.mktemp("two"), storage=storage) as second:
            yield World(first, second, cutting, storage)
            cutting.disarm()


@pytest.mark.parametrize(("killed", "is_lost"), CUTS, ids=lambda value: {True: "lost", False: "unanswered"}.get(value, value))
@pytest.mark.parametrize("name", CASES)
async def test_repeated_write_ends_with_one_holder(world: World, name: str, killed: str, *, is_lost: bool) -> None:
    case, step, expected = CASES[name], 0, None
    while True:
        body = await world.begin(case)
        if expected is None:
            code, answer = await patch(world.second, case.path, body)
            assert code == 200, answer
            expected = await world.state()
            assert [*expected[1].values()] == ([case.locked] if case.locked else [])
            continue
        world.cutting.arm(step, killed, is_lost=is_lost)
        async with asyncio.TaskGroup() as tasks:
            calling, cut = tasks.create_task(patch(world.first, case.path, body)), tasks.create_task(world.cutting.cut.wait())
            await asyncio.wait((calling, cut), return_when=asyncio.FIRST_COMPLETED)
            if cut.done() and killed == "virt-api":
                calling.cancel()
            cut.cancel()
        if not world.cutting.cut.is_set():
            assert calling.result()[0] == 200, calling.result()
            if world.cutting.steps <= step:
                break
            step += 1
            continue
        await world.state()
        for _ in range(2):
            code, answer = await patch(world.second, case.path, body)
            assert code == 200, (step, answer)
            assert await world.state() == expected, step
        step += 1
    assert step >= 1
