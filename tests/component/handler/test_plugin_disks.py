from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import layout
from handler.plugins.answers import Description
from handler.plugins.deleting import Deleter
from handler.plugins.protocol import Command, Kind
from handler.plugins.records import Records
from handler.pods import places
from handler.storage import adding
from handler.storage.adding import DisksFault, PluginDisks

POD = str(uuid.UUID(int=9))
VM: dict[str, Any] = {
    "metadata": {"namespace": "a", "name": "b", "uid": "c"},
    "spec": {"domain": {"devices": {"disks": [{"name": "data", "type": "Plugin", "source": {"plugin": "san"}}]}}},
}


class San:
    def __init__(self) -> None:
        self.calls: list[Command] = []
        self.attached: set[str] = set()
        self.may_add = asyncio.Event()

    async def describe(self, kind: Kind, name: str) -> Description:
        return Description(("1.0.0",), ("storage",), live_migration=False)

    async def call(
        self, kind: Kind, name: str, command: Command, document: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        self.calls.append(command)
        if command == "ADD":
            await self.may_add.wait()
            self.attached.add(document["disk"]["name"])
            return {"version": "1.0.0", "disk": {"protocol": "nbd", "path": document["disk"]["socket"], "size": 512}}
        self.attached.discard(document["disk"]["name"])
        return {}


class World:
    def __init__(self, directory: Path) -> None:
        self.kubelet = directory / "kubelet"
        self.volumes = self.kubelet / "pods" / POD / "volumes" / "kubernetes.io~empty-dir"
        for each in (layout.RUN_VOLUME, layout.PLUGIN_DISKS_VOLUME):
            (self.volumes / each).mkdir(parents=True)
        self.san = San()
        self.records = Records(directory / "records")
        self.disks = PluginDisks(self.san, self.records, self.kubelet)
        self.looked = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.deleter = Deleter(self.records, self.san.call, self.is_there, lambda _record, _fault: None)

    def is_there(self, uid: str) -> bool:
        self.loop.call_soon_threadsafe(self.looked.set)
        return places.has_volumes(uid, self.kubelet)


@pytest.fixture
async def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_pod_deleted_during_an_add_leaves_nothing_attached(world: World) -> None:
    async def add() -> None:
        with pytest.raises(DisksFault):
            await world.disks.add(VM, POD)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        adding_it = group.create_task(add())
        while not world.san.calls:
            await asyncio.sleep(0.001)
        shutil.rmtree(world.volumes.parents[1])
        look = group.create_task(world.deleter.look())
        await world.looked.wait()
        for _ in range(10):
            await asyncio.to_thread(len, world.san.calls)
        world.san.may_add.set()
        await adding_it
        await look
    await world.deleter.look()
    assert (world.san.calls, world.san.attached) == (["ADD", "DEL"], set())
    assert not list(world.records.all())


async def test_hanging_plugin_is_a_fault_before_the_pass_ends(world: World) -> None:
    disks = PluginDisks(world.san, world.records, world.kubelet, adding.Limits(all_seconds=0.05))
    with pytest.raises(DisksFault, match=r"disk 'data': its plugin did not answer within 0\.05 s in all") as raised:
        await disks.add(VM, POD)
    assert (raised.value.reason, raised.value.retry_seconds > 0) == ("PluginTimedOut", True)
    with pytest.raises(DisksFault):
        await disks.add(VM, POD)
    assert world.san.calls == ["ADD"]
