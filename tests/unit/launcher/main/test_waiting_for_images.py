from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages
from tests.unit.launcher.main.world import MACHINE, SYNC, World

CLAIM: dict[str, Any] = {"memory": {"guest": "128Mi"}, "devices": {"disks": [{"name": "data", "type": "PersistentVolumeClaim"}]}}
CREATED = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "c", "create": {"size": "1Mi"}}}
WITH_CLAIM = messages.Machine("default", "testvm", "u-1", CLAIM, "qemu", (), 0.4)


@pytest.fixture
def claim(tmp_path: Path, pod_directories: Callable[..., None]) -> Path:
    pod_directories(DISKS=tmp_path / "disks")
    (tmp_path / "disks/data").mkdir(parents=True)
    return tmp_path / "disks/data/disk.img"


async def refused(world: World, request: messages.Action) -> RequestRefused:
    with pytest.raises(RequestRefused) as found:
        await world.domain.handle(request)
    return found.value


async def test_guest_starts_once_the_image_exists(world: World, claim: Path) -> None:
    for _ in range(3):
        answer = await refused(world, messages.Sync(WITH_CLAIM))
        assert (answer.reason, answer.disks) == ("NotReady", ("data",))
    assert world.status.ending is None
    assert not world.over
    assert world.hypervisor.created == []

    claim.write_bytes(b"\0" * 512)
    await world.domain.handle(messages.Sync(WITH_CLAIM))

    assert world.status.domain is not None
    assert str(claim) in world.hypervisor.created[0]


async def test_a_blank_disk_is_created_as_soon_as_there_is_room_for_it(world: World, claim: Path) -> None:
    def start(size: str) -> messages.Sync:
        disk = {**CREATED, "source": {"name": "c", "create": {"size": size}}}
        return messages.Sync(messages.Machine("default", "testvm", "u-1", {**CLAIM, "devices": {"disks": [disk]}}, "qemu", (), 0.4))

    for _ in range(2):
        answer = await refused(world, start("1Ei"))
        assert (answer.reason, answer.disks, answer.full) == ("NotReady", ("data",), True)
    assert world.status.ending is None
    assert not claim.exists()

    await world.domain.handle(start("1Mi"))

    assert claim.stat().st_size == 1 << 20
    assert str(claim) in world.hypervisor.created[0]


async def test_migration_target_creates_no_disk(world: World, claim: Path) -> None:
    machine = messages.Machine("default", "testvm", "u-1", {**CLAIM, "devices": {"disks": [CREATED]}}, "qemu", (), 0.4)
    answer = await refused(world, messages.PrepareMigrationTarget("m1", machine))
    assert (answer.reason, list(claim.parent.iterdir())) == ("Failed", [])


async def test_a_pod_that_waits_ends_at_once_when_it_is_asked_to(world: World, claim: Path) -> None:
    assert not claim.exists()
    await refused(world, messages.Sync(WITH_CLAIM))

    world.domain.terminate()

    await world.ends("destroyed")
    claim.write_bytes(b"\0" * 512)
    await world.domain.handle(messages.Sync(WITH_CLAIM))
    assert world.hypervisor.created == []


async def test_stop_during_the_image_check_ends_the_pod(world: World, claim: Path) -> None:
    assert not claim.exists()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(refused(world, messages.Sync(WITH_CLAIM)))
        await asyncio.sleep(0)
        assert world.domain._record.known.making
        world.domain.terminate()
    assert asked.result().reason == "Conflict"
    await world.ends("destroyed")


async def test_a_pod_that_waits_has_no_guest_to_do_anything_to(world: World, claim: Path) -> None:
    assert not claim.exists()
    await refused(world, messages.Sync(WITH_CLAIM))
    assert (await refused(world, messages.Suspend())).reason == "Conflict"
    await world.domain.handle(SYNC)
    assert MACHINE.name in str(world.status.domain)


async def test_the_target_of_a_migration_does_not_wait(world: World, claim: Path) -> None:
    assert not claim.exists()
    assert (await refused(world, messages.PrepareMigrationTarget("m1", WITH_CLAIM))).reason == "Failed"
