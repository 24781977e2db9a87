from __future__ import annotations

import asyncio
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import saved_image
from launcher.domain.states import State
from launcher.hypervisor.port import HypervisorError, Progress, Unavailable
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.disks import saved_images
from launcher.protocol import messages
from tests import system_calls
from tests.fakes.hypervisor import saved_file
from tests.unit.launcher.main.world import MACHINE, NAME, PREPARE, SYNC, Call, World

ID = "0b7c1a52-0000-4000-8000-000000000001"
OTHER = "0b7c1a52-0000-4000-8000-000000000002"
SUSPEND = messages.Operate(ID, 1, "Suspend")
XML = "<domain type='qemu'><memory>131072</memory></domain>"


@pytest.fixture
def claim(world: World) -> Path:
    world.images.mkdir()
    return world.images / MACHINE.uid


def told(world: World) -> tuple[str, str]:
    found = world.status.operation_of(ID)
    return (found.state, found.message) if found is not None else ("", "")


def names(claim: Path) -> list[str]:
    return sorted(each.name for each in claim.iterdir())


def kept(claim: Path, name: str = ID, data: bytes | None = None) -> Path:
    claim.mkdir(mode=0o700, exist_ok=True)
    file = claim / name
    file.write_bytes(saved_file(XML) if data is None else data)
    file.chmod(0o600)
    return file


def digest_of(file: Path) -> str:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return saved_images._header(descriptor)[0]
    finally:
        os.close(descriptor)


def resuming(file: Path, digest: str = "") -> messages.Sync:
    return messages.Sync(MACHINE, image=messages.Image(file.name, digest or digest_of(file)))


async def refused(world: World, request: messages.Action) -> RequestRefused:
    with pytest.raises(RequestRefused) as found:
        await world.domain.handle(request)
    return found.value


async def test_saved_guest_ends_with_an_image_that_the_end_names(world: World, claim: Path) -> None:
    kept(claim, OTHER)
    kept(claim, f"{OTHER}.used", b"")
    await world.domain.handle(SYNC)
    await world.domain.handle(SUSPEND)
    await world.ends("saved")
    ending = world.status.ending
    assert ending is not None
    image = saved_image.read(ending.message)
    assert image == saved_image.Image(ID, digest_of(claim / ID), (claim / ID).stat().st_size)
    assert told(world) == ("succeeded", "")
    assert names(claim) == [ID]
    assert stat.S_IMODE((claim / ID).stat().st_mode) == 0o600


async def test_without_a_claim_nothing_is_saved(world: World) -> None:
    await world.domain.handle(SYNC)
    await world.domain.handle(SUSPEND)
    assert told(world)[0] == "failed"
    assert "spec.managedSave" in told(world)[1]
    assert "save" not in world.hypervisor.calls


async def test_guest_with_a_disk_in_its_pod_is_not_saved(world: World, claim: Path, overlays: Path) -> None:
    (overlays / "scratch.qcow2").touch()
    disks = [{"name": "scratch", "type": "EmptyDisk", "source": {"size": "1Mi"}}]
    machine = messages.Machine("default", "testvm", "u-1", {"memory": {"guest": "128Mi"}, "devices": {"disks": disks}}, "qemu")
    await world.domain.handle(messages.Sync(machine))
    await world.domain.handle(SUSPEND)
    assert told(world) == ("failed", "what the guest wrote to the disk 'scratch' exists only in this pod")


async def test_failed_save_leaves_the_guest_and_no_file(world: World, claim: Path) -> None:
    await world.domain.handle(SYNC)

    async def failing(_call: Call) -> None:
        kept(claim, f"{ID}.partial")
        raise HypervisorError("save domain: No space left on device")

    world.hypervisor.intercept("save", failing)
    await world.domain.handle(SUSPEND)
    await world.until(lambda: told(world)[0] == "failed")
    assert told(world)[1] == "save domain: No space left on device"
    assert world.hypervisor.domains[NAME].state is State.RUNNING
    assert names(claim) == []
    await world.domain.handle(messages.Operate("b", 2, "Reset"))
    assert world.hypervisor.calls.count("reset") == 1


def test_a_claim_without_room_is_known_before(tmp_path: Path) -> None:
    def full(_path: object) -> os.statvfs_result:
        return os.statvfs_result((1 << 20, 1 << 20, 1000, 255, 255, 0, 0, 0, 0, 255))

    kept(tmp_path / "u-1", OTHER)
    with pytest.raises(saved_images.ImageUnusable) as refused:
        saved_images.make_room("u-1", 128 << 20, tmp_path, full)
    assert str(refused.value) == "the storage of spec.managedSave has 255 MiB free, and the guest's memory and 128 MiB need 256 MiB"
    assert names(tmp_path / "u-1") == []


async def test_a_guest_that_does_not_fit_is_not_saved(world: World, claim: Path) -> None:
    machine = messages.Machine("default", "testvm", "u-1", {"memory": {"guest": "64Ti"}}, "qemu")
    await world.domain.handle(messages.Sync(machine))
    await world.domain.handle(SUSPEND)
    await world.until(lambda: told(world)[0] == "failed")
    assert "MiB free" in told(world)[1]
    assert "save" not in world.hypervisor.calls
    assert names(claim) == []


async def test_a_save_tells_its_progress_and_refuses_other_requests(world: World, claim: Path) -> None:
    await world.domain.handle(SYNC)
    world.hypervisor.holds_saves = True

    async def progress(_call: Call) -> Any:
        return Progress(data_total_bytes=100, data_remaining_bytes=55)

    world.hypervisor.intercept("progress", progress)
    await world.domain.handle(SUSPEND)
    await world.until(lambda: world.status.operations[0].percent == 40)
    for request in (messages.Suspend(), messages.Resume(), messages.Migrate("m1"), messages.Operate("b", 2, "Reset")):
        assert (await refused(world, request)).reason == "Conflict"
    assert not world.over
    world.hypervisor.end_migration(NAME)
    await world.ends("saved")


async def test_stop_aborts_the_save_and_shuts_the_guest_down(world: World, claim: Path) -> None:
    await world.domain.handle(SYNC)
    world.hypervisor.holds_saves = True
    await world.domain.handle(SUSPEND)
    await world.until(lambda: world.hypervisor.migrating)
    await world.domain.handle(messages.Shutdown(20))
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    assert told(world)[0] == "failed"
    assert names(claim) == []
    world.hypervisor.become(NAME, State.SHUTOFF, "shutdown")
    await world.ends("shutdown-requested")


@pytest.mark.parametrize("saved", [True, False])
async def test_lost_answer_is_replaced_by_a_look(world: World, claim: Path, *, saved: bool) -> None:
    await world.domain.handle(SYNC)

    async def failing(call: Call) -> None:
        if saved:
            await call()
        raise Unavailable("client socket is closed")

    world.hypervisor.intercept("save", failing)
    await world.domain.handle(SUSPEND)
    if saved:
        await world.ends("saved")
        assert names(claim) == [ID]
    else:
        await world.until(lambda: told(world) == ("failed", "client socket is closed"))


async def test_an_image_is_marked_as_used_before_its_guest_runs(world: World, claim: Path) -> None:
    file = kept(claim)
    kept(claim, OTHER)
    seen: list[list[str]] = []

    async def resume(call: Call) -> Any:
        seen.append(names(claim))
        return await call()

    world.hypervisor.intercept("resume", resume)
    await world.domain.handle(resuming(file))
    assert seen == [[f"{ID}.used"]]
    assert (claim / f"{ID}.used").stat().st_size == 0
    assert world.hypervisor.created == [XML]
    assert world.hypervisor.domains[NAME].state is State.RUNNING
    assert world.status.started


def test_image_is_durable_under_its_name(tmp_path: Path) -> None:
    partial, seen = kept(tmp_path, f"{ID}.partial"), list[list[str]]()
    with system_calls.at(os.fsync, lambda: seen.append(names(tmp_path))):
        saved_images.seal(partial, tmp_path / ID)
    assert seen == [[f"{ID}.partial"], [ID]]


def test_mark_of_use_is_durable(tmp_path: Path) -> None:
    image, seen = kept(tmp_path), list[list[str]]()
    with system_calls.at(os.fsync, lambda: seen.append(names(tmp_path))):
        saved_images.mark_used(image)
    assert seen == [[f"{ID}.used"]]


async def test_used_image_is_never_used_again(world: World, claim: Path) -> None:
    digest = digest_of(kept(claim))
    (claim / ID).rename(claim / f"{ID}.used")
    refusal = await refused(world, messages.Sync(MACHINE, image=messages.Image(ID, digest)))
    assert "its memory is lost" in str(refusal)
    await world.ends("start-failed")
    assert world.status.ending is not None
    assert world.status.ending.image_used
    assert "restore" not in world.hypervisor.calls


@pytest.mark.parametrize("change", ["header", "gone", "link", "hard link", "incomplete"])
async def test_a_changed_image_is_refused_and_stays(world: World, claim: Path, change: str) -> None:
    file = kept(claim)
    request = resuming(file)
    match change:
        case "header":
            file.write_bytes(saved_file(XML.replace("131072", "262144")))
        case "gone":
            file.unlink()
        case "link":
            file.rename(claim.parent / "elsewhere")
            file.symlink_to(claim.parent / "elsewhere")
        case "hard link":
            (claim.parent / "elsewhere").hardlink_to(file)
        case _:
            file.write_bytes(b"LibvirtQemudPart" + saved_file(XML)[16:])
    await refused(world, request)
    await world.ends("start-failed")
    assert world.status.ending is not None
    assert not world.status.ending.image_used
    assert "restore" not in world.hypervisor.calls
    assert names(claim) == ([] if change == "gone" else [ID])


async def test_failed_restore_keeps_the_image(world: World, claim: Path) -> None:
    file = kept(claim)
    world.hypervisor.fail_next = HypervisorError("restore domain: guest CPU doesn't match specification")
    refusal = await refused(world, resuming(file))
    assert "guest CPU doesn't match" in str(refusal)
    await world.ends("start-failed")
    assert names(claim) == [ID]


async def test_failed_mark_keeps_the_image_and_runs_nothing(world: World, claim: Path) -> None:
    file = kept(claim)

    async def restore(call: Call) -> Any:
        (claim / f"{ID}.used").mkdir()  # so that the image cannot get this name
        return await call()

    world.hypervisor.intercept("restore", restore)
    await refused(world, resuming(file))
    await world.ends("start-failed")
    assert names(claim) == [ID, f"{ID}.used"]
    assert "resume" not in world.hypervisor.calls
    assert not world.hypervisor.domains[NAME].active


async def test_a_boot_deletes_images(world: World, claim: Path) -> None:
    kept(claim)
    kept(claim, f"{OTHER}.partial", b"")
    await world.domain.handle(SYNC)
    assert names(claim) == []
    assert world.hypervisor.domains[NAME].state is State.RUNNING


async def test_target_of_a_migration_leaves_images_alone(world: World, claim: Path) -> None:
    kept(claim)
    await world.domain.handle(PREPARE)
    assert names(claim) == [ID]


async def test_the_agent_sets_the_clock_once_after_a_resume(world: World, claim: Path) -> None:
    await world.domain.handle(resuming(kept(claim)))
    world.hypervisor.answers["guest-set-time"] = {}
    before = time.time_ns()
    world.hypervisor.become(NAME, State.RUNNING, "unpaused", agent=True)
    await world.until(lambda: any(each[0] == "guest-set-time" for each in world.hypervisor.questions))
    ((command, arguments),) = (each for each in world.hypervisor.questions if each[0] == "guest-set-time")
    assert before <= arguments["time"] <= time.time_ns()
    await asyncio.sleep(0.05)
    assert world.hypervisor.calls.count(command) == 1


async def test_the_clock_of_a_guest_that_boots_is_left_alone(world: World) -> None:
    await world.domain.handle(SYNC)
    world.hypervisor.answers |= {"guest-set-time": {}, "guest-ping": {}}
    world.hypervisor.become(NAME, State.RUNNING, "booted", agent=True)
    await world.until(lambda: world.hypervisor.questions)
    await asyncio.sleep(0.05)
    assert "guest-set-time" not in world.hypervisor.calls
