from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import Object, condition, dig, name_of
from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.client.config import Config
from apiserver.client.rest import Client
from tests.component.controller.test_controller import PODS, Cluster, working
from tests.fakes.aggregating import AggregatingAPI

TYPE = {"apiVersion": "kubevirt.io/v1alpha1"}
VM = {**TYPE, "kind": "VirtualMachine", "metadata": {"name": "testvm"}, "spec": {"domain": {"memory": {"guest": "64Mi"}}}}
MIGRATION = {**TYPE, "kind": "Migration", "metadata": {"name": "move"}, "spec": {"selector": {"name": "testvm"}}}


class World(Cluster):
    def __init__(self, api: AggregatingAPI, client: Client, ours: Config) -> None:
        super().__init__(api)
        self.client, self._ours = client, ours

    async def eventually(self, kind: Any, name: str, claim: Callable[[Object], Any]) -> Object:
        found: Object = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                while True:
                    with suppress(KeyError):
                        found = await self.client.get(kind, name, "ns")
                        if claim(found):
                            return found
                    await asyncio.sleep(0.02)
        raise AssertionError(f"{name} stayed {found.get('status')}")

    async def vm_phase(self, phase: str) -> Object:
        return await self.eventually(VIRTUAL_MACHINES, "testvm", lambda vm: dig(vm, "status", "phase") == phase)

    async def migration_phase(self, phase: str) -> Object:
        return await self.eventually(MIGRATIONS, "move", lambda obj: dig(obj, "status", "phase") == phase)

    async def gone(self, kind: Any, name: str) -> None:
        async with asyncio.timeout(30):
            with suppress(errors.NotFound):
                while True:
                    await self.client.get(kind, name, "ns")
                    await asyncio.sleep(0.02)

    async def reported(self, vm: Object, node: str) -> int:
        attempts = [{**each, "runningTime": times.to_rfc3339(datetime.now(UTC))} for each in vm["status"]["attempts"]]
        status = phases.enter({**vm["status"], "attempts": attempts}, phases.RUNNING, datetime.now(UTC))
        headers = {
            "Impersonate-User": "system:serviceaccount:kubevirt:virt-handler",
            "Impersonate-Extra-authentication.kubernetes.io%2Fnode-name": node,
        }
        url = f"{self._ours.server}{VIRTUAL_MACHINES.path('ns')}/testvm/status"
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.put(url, json={**vm, "status": status}, ssl=self._ours.ssl_context()) as answer,
        ):
            return answer.status


async def test_a_machine_starts_migrates_and_goes(tmp_path: Path) -> None:
    api = AggregatingAPI()
    async with api.aggregating(tmp_path) as ours, working(api, "--no-leader-elect"), Client(ours, user_agent="test") as client:
        world = World(api, client, ours)
        vm = await client.create(VIRTUAL_MACHINES, VM, "ns")
        wanted = names.launcher_pod_name("testvm", vm["metadata"]["uid"], 1)
        await world.until(lambda: api.get(PODS, "ns", wanted), "pod")
        await world.start_pod({"metadata": {"name": wanted}})
        scheduled = await world.vm_phase("Scheduled")
        # Accepted writes: a write from a stale copy is refused, which costs only another pass.
        assert [method for method, path in api.written if "virtualmachines" in path] == ["PATCH", "PATCH"]
        ready = condition(scheduled["status"]["conditions"], "Ready")
        assert ready is not None
        assert (ready["status"], scheduled["status"]["observedGeneration"]) == ("False", 1)

        assert await world.reported(scheduled, "node2") == 403
        assert await world.reported(scheduled, "node1") == 200
        migration = await client.create(MIGRATIONS, MIGRATION, "ns")
        target = names.target_pod_name("testvm", migration["metadata"]["uid"])
        await world.until(lambda: api.get(PODS, "ns", target), "target pod")
        await world.start_pod({"metadata": {"name": target}}, "node2")
        prepared = await world.migration_phase("PreparingTarget")
        assert (prepared["status"]["sourceNode"], prepared["status"]["targetNode"]) == ("node1", "node2")
        assert prepared["status"]["observedGeneration"] == prepared["metadata"]["generation"] == 1

        await client.delete(MIGRATIONS, "move", "ns")
        await world.gone(MIGRATIONS, "move")
        await world.until(lambda: dig(api.get(PODS, "ns", target), "metadata", "deletionTimestamp"), "deletion of the target pod")
        await api.remove(PODS, "ns", target)

        await client.delete(VIRTUAL_MACHINES, "testvm", "ns")
        await world.until(lambda: dig(api.get(PODS, "ns", wanted), "metadata", "deletionTimestamp"), "deletion of the pod")
        await world.end_pod({"metadata": {"name": wanted}})
        await world.gone(VIRTUAL_MACHINES, "testvm")


async def test_a_claim_that_appears_starts_the_machine_of_the_slides(tmp_path: Path) -> None:
    disk = {"type": "PersistentVolumeClaim", "device": "disk", "source": {"name": "myVolumeClaim"}, "target": {"bus": "virtio"}}
    slides = {**VM, "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": [disk]}}}}
    api = AggregatingAPI()
    async with api.aggregating(tmp_path) as ours, working(api, "--no-leader-elect"), Client(ours, user_agent="test") as client:
        world = World(api, client, ours)
        await client.create(VIRTUAL_MACHINES, slides, "ns")
        pending = await world.vm_phase("Pending")
        lacking = condition(pending["status"]["conditions"], "DisksReady")
        assert lacking is not None
        assert lacking["reason"] == "ClaimNotFound"
        await api.put("/api/v1/persistentvolumeclaims", {"metadata": {"name": "myvolumeclaim", "namespace": "ns"}})
        await world.vm_phase("Scheduling")
        assert [name_of(each) for each in api.all(PODS)]
