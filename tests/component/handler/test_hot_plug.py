from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from apiserver.apis.virt.spec import hot_plug
from handler.pods.attachments import NotListening
from launcher.protocol import messages
from tests.component.handler.world import VMS, World, eventually, phase_is
from tests.fakes.launcher import FakeLauncher

PATH = "spec.domain.devices.disks[data]"
DATA: dict[str, Any] = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data"}}


def report(launcher: FakeLauncher, *disks: str) -> None:
    assert launcher.status.domain is not None
    devices = tuple(messages.DeviceStatus("disk", each, "vda") for each in ("disk0", *disks))
    launcher.change(domain=replace(launcher.status.domain, devices=devices, changes=(hot_plug.DISK,)))


def requests(launcher: FakeLauncher) -> list[str]:
    return [type(each).__name__ for each in launcher.received if isinstance(each, messages.AttachDisk | messages.DetachDisk)]


async def plugged(world: World, *, wanted: bool = True, own: bool = False) -> None:
    """Write a disk to plug, as virt-api and virt-controller do; not ``wanted``: to unplug. ``own``: a disk without an attachment pod."""

    def edit(vm: dict[str, Any]) -> None:
        devices = vm["spec"]["domain"]["devices"]
        domain = {**vm["spec"]["domain"], "devices": {**devices, "disks": [devices["disks"][0], DATA]}}
        if wanted:
            vm["spec"]["domain"] = domain
        else:
            vm["status"]["running"] = {"generation": 1, "domain": domain}
        if own:
            return
        (disk,) = (each for each in (*hot_plug.kept(vm), *hot_plug.removed(vm)) if each["name"] == "data")
        volume = {"attachPodName": hot_plug.pod_name(vm, disk), "attachPodUID": "pod-of-the-claim"}
        vm["status"]["volumeStatus"] = [{"name": "data", "claimName": "data", "hotplugVolume": volume}]

    await world.api.edit(VMS, "default", "testvm", edit)


def entry(world: World) -> dict[str, str]:
    return next((dict(each) for each in world.status().get("changes") or ()), {})


def devices(world: World) -> list[str]:
    return [each["name"] for each in world.status().get("devices") or () if each["kind"] == "disk"]


async def test_disk_is_mounted_and_attached_once(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher)
        await plugged(world)
        await eventually(lambda: "data" in devices(world))
        assert handler.node.mounted == {"data": "pod-of-the-claim"}
        await eventually(lambda: "DiskAttached" in world.events())
    async with world.handler() as again:
        await eventually(lambda: again.node.wired == 1)
    assert requests(launcher) == ["AttachDisk"]


async def test_mount_that_fails_is_tried_again_and_then_told(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher)
        handler.node.no_mount = FileNotFoundError("the pod does not listen yet")
        await plugged(world)
        await eventually(lambda: entry(world).get("state") == "Failed")
        assert (entry(world)["path"], entry(world)["message"]) == (PATH, "the pod does not listen yet")
        assert requests(launcher) == []
        handler.node.no_mount = None
        await eventually(lambda: "data" in devices(world))
        await eventually(lambda: entry(world) == {})


async def test_attachment_pod_that_is_not_ready_causes_no_warning(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher)
        handler.node.no_mount = NotListening("the attachment pod is not ready yet")
        await plugged(world)
        await eventually(lambda: entry(world).get("message") == "the attachment pod is not ready yet")
        assert entry(world)["state"] == "Pending"
        handler.node.no_mount = None
        await eventually(lambda: "DiskAttached" in world.events())
    assert "HardwareChangeFailed" not in world.events()


@pytest.mark.parametrize("there", [("data",), ()])
async def test_removed_disk_is_released_then_unmounted(world: World, there: tuple[str, ...]) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        handler.node.mounted["data"] = "pod-of-the-claim"
        report(launcher, *there)
        launcher.keeps_disks = True
        await plugged(world, wanted=False)
        await eventually(lambda: entry(world).get("state") == "Failed")
        assert entry(world)["message"] == "the guest has not given back disk 'data' yet"
        assert handler.node.mounted == {"data": "pod-of-the-claim"}
        launcher.keeps_disks = False
        await eventually(lambda: "running" not in world.status())
        assert handler.node.mounted == {}
        await eventually(lambda: "DiskDetached" in world.events())


async def test_disk_that_a_guest_keeps_blocks_no_other(world: World) -> None:
    logs, other = {**DATA, "name": "logs", "source": {"name": "logs"}}, {**DATA, "name": "other", "source": {"name": "other"}}
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher, "data", "logs")
        launcher.kept = ("data",)

        def edit(vm: dict[str, Any]) -> None:
            domain, (root, *_) = vm["spec"]["domain"], vm["spec"]["domain"]["devices"]["disks"]
            forms = [{**domain, "devices": {**domain["devices"], "disks": [root, *each]}} for each in ([other], [DATA, logs, other])]
            vm["spec"]["domain"] = forms[0]
            vm["status"]["running"] = {"generation": 1, "domain": forms[1]}

        await world.api.edit(VMS, "default", "testvm", edit)
        await eventually(lambda: sorted(devices(world)) == ["data", "disk0", "other"])
        await eventually(lambda: entry(world).get("path") == PATH)
        runs = world.status()["running"]["domain"]["devices"]["disks"]
        assert {each["name"] for each in runs} == {"disk0", "data", "other"}
        launcher.kept = ()
        await eventually(lambda: "running" not in world.status())
        assert handler.node.mounted == {}


async def test_drive_gets_a_medium_and_ejects_it(world: World) -> None:
    empty = {"name": "data", "device": "cdrom"}

    async def edit(desired: dict[str, Any], runs: dict[str, Any]) -> None:
        def change(vm: dict[str, Any]) -> None:
            domain, (root, *_) = vm["spec"]["domain"], vm["spec"]["domain"]["devices"]["disks"]
            forms = [{**domain, "devices": {**domain["devices"], "disks": [root, each]}} for each in (desired, runs)]
            vm["spec"]["domain"] = forms[0]
            if desired != runs:
                vm["status"]["running"] = {"generation": 1, "domain": forms[1]}

        await world.api.edit(VMS, "default", "testvm", change)

    def report_drive(*, empty: bool) -> None:
        assert launcher.status.domain is not None
        devices = (messages.DeviceStatus("disk", "disk0", "vda"), messages.DeviceStatus("disk", "data", "sda", empty=empty))
        launcher.change(domain=replace(launcher.status.domain, devices=devices, changes=(hot_plug.MEDIUM,)))

    await world.vm()
    launcher = await world.launcher("pod-1")
    launcher.drives = ("data",)
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report_drive(empty=True)
        await edit({**DATA, **empty}, {**DATA, **empty})
        await eventually(lambda: requests(launcher) == ["AttachDisk"])
        await eventually(lambda: "DiskAttached" in world.events())
        handler.node.mounted["data"] = "pod-of-the-claim"
        await edit(empty, {**DATA, **empty})
        await eventually(lambda: "running" not in world.status())
        assert handler.node.mounted == {}
        await eventually(lambda: "DiskDetached" in world.events())
    assert requests(launcher) == ["AttachDisk", "DetachDisk"]
    assert launcher.status.domain is not None
    assert [(each.name, each.empty) for each in launcher.status.domain.devices] == [("disk0", False), ("data", True)]


async def test_own_volume_is_unmounted_before_its_claim_is_free(world: World) -> None:
    """A compromised launcher says that the guest gave it back."""
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        handler.node.mounted["data"] = "pod-1"
        handler.node.no_mount = OSError(errno.EBUSY, "Device or resource busy", "disk.img")
        report(launcher)
        await plugged(world, wanted=False, own=True)
        await eventually(lambda: entry(world).get("state") == "Failed")
        assert entry(world)["message"] == "virt-handler cannot change the device in the pod: Device or resource busy: disk.img"
        assert "running" in world.status()
        handler.node.no_mount = None
        await eventually(lambda: "running" not in world.status())
        assert handler.node.mounted == {}
