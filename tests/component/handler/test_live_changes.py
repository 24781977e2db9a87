from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from typing import Any

from apiserver.apis.virt.spec import live_changes
from handler.reconcilers.guests import guest_changes
from launcher.protocol import messages
from tests.component.handler.world import VMS, World, eventually, phase_is
from tests.fakes.launcher import FakeLauncher

PATH = "spec.domain.devices.disks[disk0].ioTune"


def report(launcher: FakeLauncher, value: str = "", changes: tuple[str, ...] = live_changes.KNOWN) -> None:
    assert launcher.status.domain is not None
    settings = (messages.SettingStatus("disk.ioTune", "disk0", value),)
    launcher.change(domain=replace(launcher.status.domain, settings=settings, changes=changes))


def requests(launcher: FakeLauncher) -> list[messages.Change]:
    return [each for each in launcher.received if isinstance(each, messages.Change)]


async def limit(world: World, number: int) -> None:
    def edit(vm: dict[str, Any]) -> None:
        vm["status"].setdefault("running", {"generation": 1, "domain": copy.deepcopy(vm["spec"]["domain"])})
        disk = {**vm["spec"]["domain"]["devices"]["disks"][0], "ioTune": {"totalIopsSec": number}}
        vm["spec"]["domain"] = {**vm["spec"]["domain"], "devices": {**vm["spec"]["domain"]["devices"], "disks": [disk]}}

    await world.api.edit(VMS, "default", "testvm", edit)


def entry(world: World) -> dict[str, str]:
    return next((dict(each) for each in world.status().get("changes") or ()), {})


async def test_edit_reaches_the_guest_once_and_its_end_the_status(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher)
        await eventually(lambda: world.status()["domain"].get("liveChanges") == list(live_changes.KNOWN))
        await limit(world, 500)
        await eventually(lambda: "running" not in world.status())
        assert entry(world) == {}
        await eventually(lambda: "HardwareChanged" in world.events())
    async with world.handler() as again:
        await eventually(lambda: again.node.wired == 1)
        await asyncio.sleep(0.2)
    assert [each.device["ioTune"] for each in requests(launcher)] == [{"totalIopsSec": 500}]


async def test_memory_waits_for_the_pod_and_then_for_the_guest(world: World) -> None:
    def has(launcher: FakeLauncher, mebibytes: int) -> None:
        assert launcher.status.domain is not None
        told = (messages.SettingStatus("memory.guest", "", str(mebibytes << 20)),)
        launcher.change(domain=replace(launcher.status.domain, settings=told, changes=live_changes.KNOWN))

    def edit(vm: dict[str, Any]) -> None:
        small, large = ({**vm["spec"]["domain"], "memory": {"guest": each, "maxGuest": "1Gi"}} for each in ("256Mi", "512Mi"))
        vm["spec"]["domain"], vm["status"]["running"] = large, {"generation": 1, "domain": small}

    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        has(launcher, 256)
        await eventually(lambda: world.status()["domain"].get("liveChanges") == list(live_changes.KNOWN))
        await world.api.edit(VMS, "default", "testvm", edit)
        await eventually(lambda: entry(world).get("message") == "its pod must be resized first")
        assert requests(launcher) == []
        await world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(podResize={"guestMemoryBytes": 512 << 20}))
        await eventually(lambda: entry(world).get("message") == "the guest has 256 MiB so far")
    async with world.handler() as again:
        await eventually(lambda: again.node.wired == 1)
        await asyncio.sleep(0.2)
        assert [each.device["guest"] for each in requests(launcher)] == ["512Mi"]
        has(launcher, 512)
        await eventually(lambda: "running" not in world.status())
        assert entry(world) == {}


async def test_disk_without_an_image_takes_an_edit_of_its_source(world: World) -> None:
    data: dict[str, Any] = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data"}}

    def edit(vm: dict[str, Any]) -> None:
        domain = vm["spec"]["domain"]
        forms = [
            {
                **domain,
                "devices": {**domain["devices"], "disks": [*domain["devices"]["disks"], {**data, "source": {"name": "data", **more}}]},
            }
            for more in ({"create": {"size": "1Gi"}}, {})
        ]
        vm["spec"]["domain"], vm["status"]["running"] = forms[0], {"generation": 1, "domain": forms[1]}

    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher)
        await world.api.edit(VMS, "default", "testvm", edit)
        await eventually(lambda: "running" not in world.status())
    assert requests(launcher) == []


async def test_failure_is_told_once_and_the_next_edit_is_tried_at_once(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher)
        launcher.instead = lambda request: ("Failed", "libvirt says no") if isinstance(request, messages.Change) else None
        await limit(world, 500)
        await eventually(lambda: entry(world).get("state") == "Failed")
        assert (entry(world)["path"], entry(world)["message"]) == (PATH, "libvirt says no")
        await asyncio.sleep(0.2)
        assert len(requests(launcher)) == 1
        await eventually(lambda: world.events().count("HardwareChangeFailed") == 1)
        launcher.instead = None
        await limit(world, 501)
        await eventually(lambda: "running" not in world.status())


async def test_change_without_effect_is_a_failure(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher)
        launcher.instead = lambda _request: None
        await limit(world, 500)
        await eventually(lambda: entry(world).get("message") == guest_changes.WITHOUT_EFFECT)
        await asyncio.sleep(0.2)
    assert len(requests(launcher)) == 1


async def test_reverted_edit_is_reverted_in_the_guest(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
    report(launcher, "totalIopsSec=500")
    async with world.handler():
        await eventually(lambda: len(requests(launcher)) == 1)
    assert "ioTune" not in requests(launcher)[0].device
    assert launcher.status.domain is not None
    assert [each.value for each in launcher.status.domain.settings] == [""]


async def test_virt_handler_killed_after_a_change_does_not_repeat_it(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
    report(launcher, "totalIopsSec=500")
    await limit(world, 500)
    async with world.handler():
        await eventually(lambda: "running" not in world.status())
    assert requests(launcher) == []


async def test_launcher_of_an_older_release_is_not_asked(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher, changes=())
        await limit(world, 500)
        await asyncio.sleep(0.3)
    assert requests(launcher) == []
    assert "changes" not in world.status()
    assert "liveChanges" not in world.status()["domain"]
