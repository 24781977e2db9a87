from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from apiserver.apis.virt.places.saved_image import Image
from handler.pods.hanging import StorageHangs
from handler.storage.node_disk import Refused
from launcher.protocol import messages
from tests.component.handler.test_guests import ask
from tests.component.handler.world import VMS, World, eventually, phase_is
from tests.unit.handler.reconcilers.builders import an_operation

ID = "0b7c1a52-0000-4000-8000-000000000001"
IMAGE = Image(ID, 64 * "a", 7)


async def claimed(world: World, **status: Any) -> None:
    def edit(vm: dict[str, Any]) -> None:
        vm["spec"]["managedSave"] = {"claimName": "memory"}
        vm["status"].update(status)

    await world.vm()
    await world.api.edit(VMS, "default", "testvm", edit)


async def test_suspended_machine_shows_progress_and_then_its_image(world: World) -> None:
    await claimed(world)
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        await ask(world, an_operation(ID, 1, "Suspend"))
        await eventually(lambda: world.status()["operations"][0].get("percent") == 40)
        assert phase_is(world, "Running")
        launcher.saved(IMAGE)
        await eventually(lambda: phase_is(world, "Suspended"))
        await eventually(lambda: {"Suspended", "Saved"} <= set(world.events()))
    status = world.status()
    assert (status["managedSave"]["id"], status["managedSave"]["claimName"]) == (ID, "memory")
    assert status["operations"][0]["result"] == "Succeeded"
    assert sum(isinstance(each, messages.Operate) for each in launcher.received) == 1


def image() -> dict[str, Any]:
    return {"id": ID, "claimName": "memory", "file": f"u/{ID}", "digest": f"sha256:{IMAGE.digest}", "sizeBytes": 7}


async def test_resuming_guest_gets_its_image_and_has_none_once_it_runs(world: World) -> None:
    disk = {"kind": "disk", "name": "root", "target": "vdc"}
    await claimed(world, managedSave=image(), devices=[disk])
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
    (sync,) = (each for each in launcher.received if isinstance(each, messages.Sync))
    assert sync.image == messages.Image(ID, IMAGE.digest)
    assert sync.machine.targets == {"root": "vdc"}
    assert "managedSave" not in world.status()


async def test_older_launcher_boots_no_suspended_machine(world: World) -> None:
    await claimed(world, managedSave=image())
    launcher = await world.launcher("pod-1")
    launcher.operations = ("Reset", "Resume")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Failed"))
    assert launcher.starts == 0
    assert world.status()["managedSave"] == image()


@pytest.mark.parametrize("used", [True, False])
async def test_failed_resume_keeps_the_image_unless_it_was_used(world: World, *, used: bool) -> None:
    await claimed(world, managedSave=image())
    launcher = await world.launcher("pod-1")

    def refuse(request: messages.Action) -> tuple[messages.RefusalReason, str] | None:
        if not isinstance(request, messages.Sync):
            return launcher._carry_out(request)
        launcher.change(ending=messages.Ending("start-failed", "no", image_used=used))
        return "Failed", "no"

    launcher.instead = refuse
    async with world.handler():
        await eventually(lambda: phase_is(world, "Failed"))
    assert ("managedSave" in world.status()) is not used


async def on_node_disk(world: World, **status: Any) -> None:
    await claimed(world, **status)
    await world.api.edit(VMS, "default", "testvm", lambda vm: vm["spec"].update(managedSave={"nodeDisk": {}}))


async def test_memory_goes_to_the_nodes_disk_on_request(world: World) -> None:
    await on_node_disk(world)
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        await ask(world, an_operation(ID, 1, "Suspend", parameters={"nodeDisk": True}))
        await eventually(lambda: world.status()["operations"][0].get("percent") == 40)
        ((image, memory),) = handler.node.memory_images.items()
        assert (image.machine, image.id, memory > 0) == ("testvm", ID, True)
        launcher.saved(IMAGE)
        await eventually(lambda: phase_is(world, "Suspended"))
    assert "claimName" not in world.status()["managedSave"]
    assert [each.action for each in launcher.received if isinstance(each, messages.Operate)] == ["SuspendToNodeDisk"]


async def test_save_that_the_node_refuses_fails_and_the_guest_goes_on(world: World) -> None:
    await on_node_disk(world)
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.no_mount = Refused("the disk of node n has 1 MiB free")
        await eventually(lambda: phase_is(world, "Running"))
        await ask(world, an_operation(ID, 1, "Suspend", parameters={"nodeDisk": True}))
        await eventually(lambda: bool(world.status()["operations"][0].get("result")))
    assert world.status()["operations"][0]["message"] == "the disk of node n has 1 MiB free"
    assert not [each for each in launcher.received if isinstance(each, messages.Operate)]


async def test_save_waits_for_a_nodes_disk_that_hangs(world: World) -> None:
    await on_node_disk(world)
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.no_mount = StorageHangs("the node's disk does not answer")
        await eventually(lambda: phase_is(world, "Running"))
        await ask(world, an_operation(ID, 1, "Suspend", parameters={"nodeDisk": True}))
        await eventually(lambda: "DiskNotAnswering" in world.events())
        assert not world.status()["operations"][0].get("result")
        handler.node.no_mount = None
        await eventually(lambda: world.status()["operations"][0].get("percent") == 40)
        launcher.saved(IMAGE)
        await eventually(lambda: phase_is(world, "Suspended"))


def on_disk() -> dict[str, Any]:
    return {**{key: value for key, value in image().items() if key != "claimName"}, "nodeName": "n"}


async def test_resuming_guest_finds_its_image_of_the_nodes_disk(world: World) -> None:
    await on_node_disk(world, managedSave=on_disk())
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
    (sync,) = (each for each in launcher.received if isinstance(each, messages.Sync))
    assert sync.image == messages.Image(ID, IMAGE.digest, on_node_disk=True)
    assert [(each.id, memory) for each, memory in handler.node.memory_images.items()] == [(ID, 0)]


async def test_resume_fails_without_the_image_on_the_nodes_disk(world: World) -> None:
    await on_node_disk(world, managedSave=on_disk())
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.no_mount = Refused("the disk of node n has no image")
        await eventually(lambda: phase_is(world, "Failed"))
    assert world.status()["attempts"][-1]["message"] == "the disk of node n has no image"
    assert world.status()["managedSave"]["id"] == ID
    assert not [each for each in launcher.received if isinstance(each, messages.Sync)]


async def test_resume_waits_while_the_nodes_disk_is_damaged(world: World) -> None:
    await on_node_disk(world, managedSave=on_disk())
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.no_mount = OSError(errno.EUCLEAN, os.strerror(errno.EUCLEAN))
        await eventually(lambda: "DiskNotUsable" in world.events())
        (told,) = (each for each in world.status()["conditions"] if each["type"] == "DisksReady")
        assert "memory on the node's disk cannot be mounted: Structure needs cleaning; to boot without it" in told["message"]
        assert not [each for each in launcher.received if isinstance(each, messages.Sync)]
        handler.node.no_mount = None
        await eventually(lambda: phase_is(world, "Running"))
    assert "DisksReady" not in {each["type"] for each in world.status()["conditions"] if each["status"] == "False"}


async def test_older_launcher_gets_no_image_of_the_nodes_disk(world: World) -> None:
    await on_node_disk(world, managedSave=on_disk())
    launcher = await world.launcher("pod-1")
    launcher.operations = ("Reset", "Resume", "Suspend")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Failed"))
    assert "is of an older version" in world.status()["attempts"][-1]["message"]
    assert handler.node.memory_images == {}
