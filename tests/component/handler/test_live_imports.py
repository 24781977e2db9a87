"""A running guest gets a claim after its attachment pod, here a second fake launcher, imported the image."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any, Final

import pytest

from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec import hot_plug
from launcher.protocol import messages
from tests.component.handler.test_hot_plug import PATH, devices, entry, report, requests
from tests.component.handler.world import VMS, World, eventually, phase_is
from tests.fakes.launcher import FakeLauncher

MIB: Final = 1 << 20
POD: Final = "pod-of-the-claim"
URL: Final = "http://images/disk.img"
DATA: Final[dict[str, Any]] = {
    "name": "data",
    "type": "PersistentVolumeClaim",
    "source": {"name": "data", "import": {"http": {"url": f"{URL}?signature=secret"}}},
}


async def edit(world: World, *, wanted: bool, runs: bool) -> None:
    def change(vm: Object) -> None:
        devices = vm["spec"]["domain"]["devices"]
        root = devices["disks"][0]
        forms = [{**vm["spec"]["domain"], "devices": {**devices, "disks": [root, *([DATA] if each else [])]}} for each in (wanted, runs)]
        vm["spec"]["domain"] = forms[0]
        vm["status"].pop("running", None)
        if wanted != runs:
            vm["status"]["running"] = {"generation": 1, "domain": forms[1]}
        (disk,) = (each for each in (*hot_plug.kept(vm), *hot_plug.removed(vm)) if each["name"] == "data")
        volume = {"attachPodName": hot_plug.pod_name(vm, disk), "attachPodUID": POD}
        vm["status"]["volumeStatus"] = [{"name": "data", "claimName": "data", "phase": "AttachedToNode", "hotplugVolume": volume}]

    await world.api.edit(VMS, "default", "testvm", change)


def an_import(phase: messages.ImportPhase, done: int = 0, **more: Any) -> tuple[messages.ImportStatus, ...]:
    return (messages.ImportStatus(layout.ATTACHMENT_VOLUME, phase, done * MIB, 9 * MIB, **more),)


def imports(world: World) -> list[Any]:
    return [(each["disk"], each["phase"], each["transferredBytes"]) for each in world.status().get("imports") or ()]


def condition(world: World, type_: str) -> tuple[str, str]:
    found = objects.condition(world.status()["conditions"], type_) or {}
    return str(found.get("status")), str(found.get("reason"))


async def pods(world: World, *phase: messages.ImportStatus) -> tuple[FakeLauncher, FakeLauncher]:
    world.limits = replace(world.limits, import_seconds=0.05, start_again_seconds=0.05, write_seconds=0.05)
    await world.vm()
    guest, pod = await world.launcher("pod-1"), await world.launcher(POD)
    pod.importing = phase
    return guest, pod


async def test_guest_gets_the_claim_after_its_image(world: World) -> None:
    guest, pod = await pods(world, *an_import("Pending"))
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report(guest)
        await edit(world, wanted=True, runs=True)
        await eventually(lambda: entry(world).get("message") == f"disk 'data': the import of its image from {URL} begins")
        pod.importing = an_import("Downloading", 3)
        await eventually(lambda: imports(world) == [("data", "Downloading", 3 * MIB)])
        assert (entry(world)["path"], entry(world)["state"]) == (PATH, "Pending")
        assert entry(world)["message"] == f"disk 'data': 3 of 9 MiB of its image downloaded from {URL}"
        assert condition(world, "Migratable") == ("False", "NotMigratable")
        assert requests(guest) == []
        assert (handler.node.mounted, set(handler.node.given_claims)) == ({}, {POD})
        (request, *_) = pod.received
        assert isinstance(request, messages.Import)
        (disk,) = request.machine.domain["devices"]["disks"]
        assert (disk["name"], disk["source"]) == (layout.ATTACHMENT_VOLUME, DATA["source"])
        pod.importing = an_import("Converting", 9)
        await eventually(lambda: imports(world) == [("data", "Converting", 9 * MIB)])
        pod.importing = an_import("Succeeded")
        await eventually(lambda: "data" in devices(world))
        assert handler.node.mounted == {"data": POD}
        await eventually(lambda: (imports(world), entry(world)) == ([], {}))
        assert condition(world, "Migratable") == ("True", "Migratable")
        assert {"ImportStarted", "ImportSucceeded", "DiskAttached"} <= set(world.events())
        assert handler.node.ended == []
    assert requests(guest) == ["AttachDisk"]


async def test_failed_import_is_told_and_retried(world: World) -> None:
    guest, pod = await pods(world, *an_import("Retrying", failures=1, message="404 Not Found"))
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        report(guest)
        await edit(world, wanted=True, runs=True)
        await eventually(lambda: condition(world, "DisksReady") == ("False", "ImportFailed"))
        why = "disk 'data': 404 Not Found; to change its source, remove the disk and add it again"
        assert (entry(world)["state"], entry(world)["message"]) == ("Failed", why)
        await eventually(lambda: "ImportFailed" in world.events())
        writes = len(world.api.writes)
        await eventually(lambda: len(pod.received) > 5)
        assert len(world.api.writes) <= writes + 2, "the same failure is written once"
        pod.importing = an_import("Succeeded")
        await eventually(lambda: "data" in devices(world))
        await eventually(lambda: condition(world, "DisksReady") == ("True", conditions.DISKS_FOUND))


async def test_disk_removed_during_its_import_is_free_after_its_pod(world: World) -> None:
    guest, _ = await pods(world, *an_import("Downloading", 3))
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report(guest)
        await edit(world, wanted=True, runs=True)
        await eventually(lambda: imports(world) != [])
        handler.node.no_end = OSError(errno.EBUSY, "process 7 of the pod does not end")
        await edit(world, wanted=False, runs=True)
        await eventually(lambda: entry(world).get("state") == "Failed")
        assert "process 7 of the pod does not end" in entry(world)["message"]
        assert "running" in world.status()
        handler.node.no_end = None
        await eventually(lambda: "running" not in world.status())
        assert handler.node.ended == [POD]
        await eventually(lambda: imports(world) == [])


@pytest.mark.parametrize("has_image", [False, True])
async def test_end_of_the_guest_waits_for_the_end_of_its_import(world: World, *, has_image: bool) -> None:
    guest, _ = await pods(world, *an_import("Succeeded" if has_image else "Downloading"))
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report(guest)
        await edit(world, wanted=True, runs=True)
        await eventually(lambda: ("data" in devices(world)) if has_image else (imports(world) != []))
        handler.node.no_end = OSError(errno.EBUSY, "hangs")
        guest.end("shutdown")
        refused = handler.node.refused_ends
        await eventually(lambda: handler.node.refused_ends > refused + 1)
        assert phase_is(world, "Running")
        handler.node.no_end = None
        await eventually(lambda: phase_is(world, "Succeeded"))
        assert handler.node.ended == [POD]


async def test_next_virt_handler_goes_on_with_an_import(world: World) -> None:
    guest, pod = await pods(world, *an_import("Downloading", 3))
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        report(guest)
        await edit(world, wanted=True, runs=True)
        await eventually(lambda: imports(world) != [])
    pod.importing = an_import("Downloading", 5)
    async with world.handler():
        await eventually(lambda: imports(world) == [("data", "Downloading", 5 * MIB)])
        pod.importing = an_import("Succeeded")
        await eventually(lambda: "data" in devices(world))
    assert requests(guest) == ["AttachDisk"]


async def test_pod_that_ended_is_waited_for(world: World) -> None:
    guest, pod = await pods(world, *an_import("Downloading", 3))
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report(guest)
        await edit(world, wanted=True, runs=True)
        await eventually(lambda: imports(world) != [])
        pod.exit()
        await eventually(lambda: "has ended; virt-controller makes another one" in entry(world).get("message", ""))
        assert (entry(world)["state"], handler.node.mounted) == ("Pending", {})
    async with world.handler():
        writes = len(world.api.writes)
        assert guest.status.domain is not None
        guest.change(domain=replace(guest.status.domain, state="paused", reason="ioerror"))
        await eventually(lambda: len(world.api.writes) > writes)
        await eventually(lambda: world.status()["domain"]["state"] == "paused")
        assert condition(world, "Migratable") == ("False", "NotMigratable")


async def test_silent_pod_of_an_import_delays_no_other_change(world: World) -> None:
    guest, pod = await pods(world, *an_import("Downloading", 3))
    world.limits = replace(world.limits, start_patience_seconds=0.1)
    pod.mute = True
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        report(guest)
        await edit(world, wanted=True, runs=True)
        await eventually(lambda: entry(world).get("message", "").endswith("does not answer"))
        await eventually(lambda: condition(world, "Migratable") == ("False", "NotMigratable"))
        assert entry(world)["state"] == "Pending"
        assert guest.status.domain is not None
        guest.change(domain=replace(guest.status.domain, state="paused", reason="ioerror"))
        await eventually(lambda: world.status()["domain"]["state"] == "paused")
