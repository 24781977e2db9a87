from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import layout
from launcher.hypervisor.port import HypervisorError, OperationTimeout
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages
from tests.unit.launcher.main.world import MACHINE, World

ROOT: dict[str, Any] = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "root"}}
GUEST = dataclasses.replace(MACHINE, domain={**MACHINE.domain, "devices": {"disks": [ROOT]}})
SYNC = messages.Sync(GUEST)


def a_disk(name: str = "data", bus: str = "virtio", **more: Any) -> dict[str, Any]:
    full = {"name": name, "type": "PersistentVolumeClaim", "source": {"name": name}, "device": "disk", "readOnly": False}
    return {**full, "target": {"bus": bus}, **more}


@pytest.fixture(autouse=True)
def claims(tmp_path: Path, pod_directories: Callable[..., None]) -> Path:
    pod_directories(DISKS=tmp_path / "disks")
    for name in ("root", "data", "logs"):
        (tmp_path / "disks" / name).mkdir(parents=True)
        (tmp_path / "disks" / name / "disk.img").write_bytes(bytes(512))
    return tmp_path / "disks"


def disks(world: World) -> dict[str, str]:
    assert world.status.domain is not None
    return {each.name: each.target for each in world.status.domain.devices if each.kind == "disk"}


def calls(world: World) -> list[str]:
    return [each for each in world.hypervisor.calls if each.startswith(("attach", "detach", "change medium"))]


async def refused(world: World, request: messages.Action) -> RequestRefused:
    with pytest.raises(RequestRefused) as found:
        await world.domain.handle(request)
    return found.value


async def test_disk_is_attached_once_and_the_others_keep_their_names(world: World) -> None:
    await world.domain.handle(SYNC)
    for each in (a_disk(), a_disk(), a_disk("logs")):
        await world.domain.handle(messages.AttachDisk(each))
    assert disks(world) == {"root": "vda", "data": "vdb", "logs": "vdc"}
    assert len(world.hypervisor.attached) == 2
    for _ in range(2):
        await world.domain.handle(messages.DetachDisk("data"))
    assert disks(world) == {"root": "vda", "logs": "vdc"}
    await world.domain.handle(messages.AttachDisk(a_disk()))
    assert disks(world) == {"root": "vda", "data": "vdb", "logs": "vdc"}


async def test_disks_attached_at_once_get_different_names(world: World) -> None:
    await world.domain.handle(SYNC)
    async with asyncio.TaskGroup() as group:
        for name in ("data", "logs"):
            group.create_task(world.domain.handle(messages.AttachDisk(a_disk(name))))
    assert disks(world) == {"root": "vda", "data": "vdb", "logs": "vdc"}


async def test_scsi_disk_comes_with_its_controller(world: World) -> None:
    await world.domain.handle(SYNC)
    await world.domain.handle(messages.AttachDisk(a_disk(bus="scsi", serial="of-the-user")))
    controller, disk = world.hypervisor.attached
    assert 'model="virtio-scsi"' in controller
    assert '<target dev="sda" bus="scsi" />' in disk
    assert "<serial>of-the-user</serial>" in disk


async def test_guest_that_keeps_a_disk_is_asked_again(world: World) -> None:
    await world.domain.handle(SYNC)
    world.hypervisor.keeps_disks = True
    found = await refused(world, messages.DetachDisk("root"))
    assert (found.reason, str(found)) == (
        "NotReady",
        "the guest has not given back disk 'root' yet; unmount it in the guest if it is in use; virt-handler asks again",
    )
    assert disks(world) == {"root": "vda"}
    world.hypervisor.keeps_disks = False
    await world.domain.handle(messages.DetachDisk("root"))
    assert disks(world) == {}


@pytest.mark.parametrize(
    ("request_", "doing"), [(messages.AttachDisk(a_disk()), "attach a disk"), (messages.DetachDisk("root"), "detach a disk")]
)
async def test_without_a_guest_disks_do_not_change(world: World, request_: messages.Action, doing: str) -> None:
    found = await refused(world, request_)
    assert (found.reason, str(found)) == ("Conflict", f"cannot {doing}: no guest runs in this pod")


async def test_missing_image_and_libvirts_failures_are_refusals(world: World, claims: Path) -> None:
    await world.domain.handle(SYNC)
    (claims / "data/disk.img").unlink()
    found = await refused(world, messages.AttachDisk(a_disk()))
    assert (found.reason, str(found)) == (
        "NotReady",
        "disk 'data': disk.img: file not found in its claim; copy an image there, or set source.create",
    )
    assert (await refused(world, messages.AttachDisk(a_disk("absent")))).reason == "Failed"
    for error, reason in ((HypervisorError("no PCI slot"), "Failed"), (OperationTimeout("no answer"), "Timeout")):
        world.hypervisor.fail_next = error
        assert (await refused(world, messages.AttachDisk(a_disk("logs")))).reason == reason
    assert disks(world) == {"root": "vda"}


async def test_disk_with_an_unfinished_import_is_refused(world: World, claims: Path) -> None:
    """After a migration away from the pod that imported, only the machine's next start imports."""
    await world.domain.handle(SYNC)
    imported = a_disk(source={"name": "data", "import": {"http": {"url": "http://images/x"}}})
    (claims / "data/disk.img").unlink()
    found = await refused(world, messages.AttachDisk(imported))
    message = "disk 'data': its claim lacks a complete image; the machine's next start imports it"
    assert (found.reason, str(found), disks(world)) == ("NotReady", message, {"root": "vda"})
    (claims / "data/disk.img").write_bytes(bytes(512))
    await world.domain.handle(messages.AttachDisk(imported))
    assert disks(world) == {"root": "vda", "data": "vdb"}


async def test_blank_disk_is_created_before_it_is_attached(world: World, claims: Path) -> None:
    await world.domain.handle(SYNC)
    (claims / "data/disk.img").unlink()
    await world.domain.handle(messages.AttachDisk(a_disk(source={"name": "data", "create": {"size": "2Mi"}})))
    assert (claims / "data/disk.img").stat().st_size == 2 << 20
    assert disks(world) == {"root": "vda", "data": "vdb"}


BLANK = a_disk("scratch", type="EmptyDisk", source={"size": "1Mi"})


async def test_overlay_is_in_the_directory_that_virt_handler_mounted(world: World, claims: Path, overlays: Path) -> None:
    await world.domain.handle(SYNC)
    found = await refused(world, messages.AttachDisk(BLANK))
    assert (found.reason, str(found)) == ("Failed", "disk 'scratch': virt-handler has not mounted a directory for its overlay")
    overlay = claims / "scratch.overlay" / layout.OVERLAY
    overlay.parent.mkdir()
    for _ in range(2):
        await world.domain.handle(messages.AttachDisk(BLANK))
    assert disks(world) == {"root": "vda", "scratch": "vdb"}
    assert f'file="{layout.DISKS_DIRECTORY}/scratch.overlay/{layout.OVERLAY}"' in world.hypervisor.attached[-1]
    assert [each[-3:] for each in world.children.runs] == [["qcow2", f"{overlay}.new", str(1 << 20)]]
    for _ in range(2):  # virt-handler may have been killed before it unmounted the directory
        overlay.write_bytes(b"of the guest")
        await world.domain.handle(messages.DetachDisk("scratch"))
        assert not overlay.exists()
    assert not (overlays / "scratch.qcow2").exists()


async def test_overlay_of_the_pod_goes_with_its_disk(world: World, overlays: Path) -> None:
    machine = dataclasses.replace(GUEST, domain={**GUEST.domain, "devices": {"disks": [BLANK]}})
    overlay = overlays / "scratch.qcow2"
    overlay.write_bytes(b"of the guest")
    await world.domain.handle(messages.Sync(machine))
    world.hypervisor.keeps_disks = True
    await refused(world, messages.DetachDisk("scratch"))
    assert overlay.exists()
    world.hypervisor.keeps_disks = False
    await world.domain.handle(messages.DetachDisk("scratch"))
    assert not overlay.exists()


DRIVE: dict[str, Any] = {"name": "tray", "device": "cdrom", "target": {"bus": "scsi"}}
CD: dict[str, Any] = {**DRIVE, "type": "PersistentVolumeClaim", "source": {"name": "data"}, "readOnly": True}


async def test_drive_gets_a_medium_and_keeps_its_place(world: World, claims: Path) -> None:
    (claims / "data").rename(claims / "tray")
    await world.domain.handle(messages.Sync(dataclasses.replace(GUEST, domain={**GUEST.domain, "devices": {"disks": [DRIVE, ROOT]}})))
    for request, empty in ((messages.AttachDisk(CD), False), (messages.DetachDisk("tray"), True)):
        await world.domain.handle(request)
        assert world.status.domain is not None
        found = [(each.name, each.target, each.empty) for each in world.status.domain.devices if each.kind == "disk"]
        assert found == [("tray", "sda", empty), ("root", "vda", False)]
    assert calls(world) == ["change medium of sda"] * 2


async def test_guest_that_locks_the_tray_keeps_its_medium(world: World) -> None:
    await world.domain.handle(
        messages.Sync(dataclasses.replace(GUEST, domain={**GUEST.domain, "devices": {"disks": [{**CD, "name": "data"}]}}))
    )
    world.hypervisor.keeps_disks = True
    found = await refused(world, messages.DetachDisk("data"))
    assert (found.reason, str(found)) == ("NotReady", "the guest locks the tray of drive 'data': unmount its medium in the guest")
    assert world.status.domain is not None
    assert [each.empty for each in world.status.domain.devices if each.kind == "disk"] == [False]
