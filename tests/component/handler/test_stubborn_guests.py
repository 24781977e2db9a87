from __future__ import annotations

import asyncio
from dataclasses import replace

from apiserver.apis.meta import objects
from handler.network.namespaces import CommandFailed
from handler.pods.hanging import StorageHangs
from launcher.protocol import messages
from tests.component.handler.world import EVENTS, VMS, World, eventually, phase_is
from tests.unit.handler.reconcilers.builders import a_request


def told(world: World, reason: str) -> int:
    return sum(int(each.get("count") or 1) for each in world.api.all(EVENTS) if each["reason"] == reason)


async def test_each_reboot_is_told_once_whatever_else_is_reported(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        launcher.change(reboots=1)
        await eventually(lambda: told(world, "Rebooted") == 1)
        assert launcher.status.domain is not None
        launcher.change(domain=replace(launcher.status.domain, state="paused", reason="watchdog"))
        await eventually(lambda: world.status()["domain"]["state"] == "paused")
        launcher.change(domain=replace(launcher.status.domain, state="running", reason="unpaused"))
        await eventually(lambda: world.status()["domain"]["state"] == "running")
        launcher.change(reboots=2)
        await eventually(lambda: told(world, "Rebooted") >= 2)
        await asyncio.sleep(0.2)
    assert told(world, "Rebooted") == 2


async def test_rebooting_guest_gets_a_condition_and_one_warning(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        for count in (1, 2, 3, 4):
            launcher.change(reboots=count)
        await eventually(lambda: told(world, "Rebooted") >= 1)
        assert objects.condition(world.status()["conditions"], "RebootLoop") is None
        launcher.change(reboots=5)
        await eventually(lambda: objects.is_true(world.status()["conditions"], "RebootLoop"))
        launcher.change(reboots=6)
        await eventually(lambda: told(world, "RebootLoop") >= 1)
        await asyncio.sleep(0.2)
    assert told(world, "RebootLoop") == 1


async def test_healed_network_is_not_rechecked_repeatedly(world: World) -> None:
    world.limits = replace(world.limits, network_heals_seconds=0.05)
    world.limits = replace(world.limits, network_seconds=0.05)
    await world.vm()
    await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
    async with world.handler() as again:
        again.node.no_network = CommandFailed("no bridge")
        await eventually(lambda: "NetworkNotReady" in world.events())
        again.node.no_network = None
        await eventually(lambda: objects.is_true(world.status()["conditions"], "NetworkReady"))
        await asyncio.sleep(0.3)
        before = again.passes["vm"]
        await asyncio.sleep(0.5)
        assert again.passes["vm"] <= before + 1


async def test_inactive_launcher_is_asked_rarely(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        launcher.instead = lambda _: None
        await world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(request=a_request("Pause")))
        await eventually(lambda: any(isinstance(each, messages.Suspend) for each in launcher.received))
        await asyncio.sleep(0.5)
    assert sum(isinstance(each, messages.Suspend) for each in launcher.received) == 1
    assert "Paused" in world.events()


async def test_a_disk_that_does_not_answer_is_told_once_while_it_lasts(world: World) -> None:
    world.limits = replace(world.limits, start_again_seconds=0.02)
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.fault = StorageHangs("a mount in pod pod-1 does not answer")
        await eventually(lambda: handler.node.given > 4)
        found = objects.condition(world.status()["conditions"], "DisksReady") or {}
        assert (found["status"], found["reason"]) == ("False", "DiskNotAnswering")
        assert found["message"] == "a mount in pod pod-1 does not answer"
        handler.node.fault = None
        await eventually(lambda: phase_is(world, "Running"))
    assert told(world, "DiskNotAnswering") == 1
    assert launcher.starts == 1


async def test_slow_start_after_its_images_waits_for_no_image(world: World) -> None:
    world.limits = replace(world.limits, image_seconds=0.02)
    await world.vm()
    launcher = await world.launcher("pod-1")
    launcher.missing = ("disk0",)
    async with world.handler():
        await eventually(lambda: "DiskImageNotFound" in world.events())
        launcher.instead = lambda _: ("Timeout", "libvirt does not answer")
        await eventually(lambda: objects.is_true(world.status()["conditions"], "DisksReady"))
        assert phase_is(world, "Scheduled")


async def test_end_is_written_at_once_despite_earlier_writes(world: World) -> None:
    world.limits = replace(world.limits, writes_burst=2)
    world.limits = replace(world.limits, write_seconds=600.0)
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        for number in range(8):
            assert launcher.status.domain is not None
            launcher.change(domain=replace(launcher.status.domain, reason=f"reason {number}"))
            await asyncio.sleep(0.02)
        assert world.status()["domain"]["reason"] != "reason 7"
        launcher.end("shutdown")
        await eventually(lambda: phase_is(world, "Succeeded"))


async def test_a_guest_that_changed_its_state_meanwhile_is_no_failure(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        launcher.instead = lambda _: ("Conflict", "the domain is shut off")
        await world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(request=a_request("Pause")))
        await eventually(lambda: any(isinstance(each, messages.Suspend) for each in launcher.received))
        await asyncio.sleep(0.3)
    assert "SuspendFailed" not in world.events()
