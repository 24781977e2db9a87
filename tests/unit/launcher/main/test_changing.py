from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.hypervisor.port import HypervisorError, OperationTimeout
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages
from tests.unit.launcher.main.world import MACHINE, NAME, World

CARD = messages.Interface("default", "02:00:00:00:00:01", "tap0")
DISK: dict[str, Any] = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
GUEST = dataclasses.replace(
    MACHINE, domain={**MACHINE.domain, "devices": {"disks": [DISK], "interfaces": [{"name": "default"}]}}, interfaces=(CARD,)
)
SYNC = messages.Sync(GUEST)
LIMIT = messages.Change("disk.ioTune", "data", {**DISK, "ioTune": {"totalIopsSec": 500, "readBytesSec": "1Mi"}})
DOWN = messages.Change("interface.state", "default", {"name": "default", "state": "down"})


@pytest.fixture(autouse=True)
def claim(tmp_path: Path, pod_directories: Callable[..., None]) -> None:
    pod_directories(DISKS=tmp_path / "disks")
    (tmp_path / "disks/data").mkdir(parents=True)
    (tmp_path / "disks/data/disk.img").write_bytes(bytes(512))


ONE = {("cpu.sockets", ""): "1"}


def settings(world: World) -> dict[tuple[str, str], str]:
    assert world.status.domain is not None
    return {(each.what, each.name): each.value for each in world.status.domain.settings}


def changes(world: World) -> list[str]:
    return [each for each in world.hypervisor.calls if each.startswith(("limit", "set link"))]


async def refused(world: World, request: messages.Action) -> RequestRefused:
    with pytest.raises(RequestRefused) as found:
        await world.domain.handle(request)
    return found.value


async def test_changes_are_made_once_and_reported(world: World) -> None:
    await world.domain.handle(SYNC)
    assert settings(world) == {("disk.ioTune", "data"): "", ("disk.size", "data"): "0", ("interface.state", "default"): "up", **ONE}
    assert world.status.domain is not None
    assert world.status.domain.changes == messages.LIVE_CHANGES
    for request in (LIMIT, LIMIT, DOWN, DOWN):
        await world.domain.handle(request)
    assert settings(world) == {
        ("disk.size", "data"): "0",
        ("disk.ioTune", "data"): "readBytesSec=1048576 totalIopsSec=500",
        ("interface.state", "default"): "down",
        **ONE,
    }
    assert changes(world) == ["limit disk vda", "set link down"]


async def test_disk_grows_with_its_file(world: World, tmp_path: Path) -> None:
    await world.domain.handle(SYNC)
    image = tmp_path / "disks/data/disk.img"
    for size in ("1Mi", "3Mi", "2Mi"):
        await world.domain.handle(messages.Change("disk.size", "data", {**DISK, "source": {"name": "data", "create": {"size": size}}}))
        assert settings(world)["disk.size", "data"] == str(int(size[0]) << 20)
    assert (image.stat().st_size, world.hypervisor.sizes) == (3 << 20, {"vda": 3 << 20})


async def test_disk_that_cannot_grow_keeps_its_size(world: World, tmp_path: Path) -> None:
    await world.domain.handle(SYNC)
    found = await refused(world, messages.Change("disk.size", "data", {**DISK, "source": {"name": "data", "create": {"size": "1Ei"}}}))
    assert found.reason == "Failed"
    assert "disk 'data'" in str(found)
    assert settings(world)["disk.size", "data"] == "0"
    assert world.hypervisor.sizes == {}


async def test_processors_are_added_and_never_removed(world: World) -> None:
    cpu = {"sockets": 1, "maxSockets": 3}
    await world.domain.handle(messages.Sync(dataclasses.replace(GUEST, domain={**GUEST.domain, "cpu": cpu})))
    assert settings(world)["cpu.sockets", ""] == "1"
    for count in (2, 2, 3):
        await world.domain.handle(messages.Change("cpu.sockets", "", {**cpu, "sockets": count}))
        assert settings(world)["cpu.sockets", ""] == str(count)
    await world.domain.handle(messages.Change("cpu.sockets", "", cpu))
    assert settings(world)["cpu.sockets", ""] == "3"
    assert [each for each in world.hypervisor.calls if "processors" in each] == ["add processors up to 2", "add processors up to 3"]


ROOM = {"guest": "256Mi", "maxGuest": "512Mi"}


async def memory_is(world: World, guest: str) -> messages.SettingStatus:
    await world.domain.handle(messages.Change("memory.guest", "", {**ROOM, "guest": guest}))
    assert world.status.domain is not None
    return next(each for each in world.status.domain.settings if each.what == "memory.guest")


async def test_memory_is_requested_and_the_guest_takes_it_at_its_pace(world: World) -> None:
    await world.domain.handle(messages.Sync(dataclasses.replace(GUEST, domain={**GUEST.domain, "memory": ROOM})))
    assert settings(world)["memory.guest", ""] == str(256 << 20)
    assert await memory_is(world, "384Mi") == messages.SettingStatus("memory.guest", "", str(384 << 20))
    world.hypervisor.keeps_memory = True
    assert await memory_is(world, "256Mi") == messages.SettingStatus("memory.guest", "", str(384 << 20), str(256 << 20))
    less = await refused(world, messages.Change("memory.guest", "", {**ROOM, "guest": "128Mi"}))
    assert less.reason == "Failed"  # virt-handler tells it; after a Conflict it only waits
    assert "started with 256 MiB" in str(less)
    with pytest.raises(RequestRefused):
        await memory_is(world, "1Gi")


async def test_guest_without_room_reports_no_memory(world: World) -> None:
    await world.domain.handle(SYNC)
    assert ("memory.guest", "") not in settings(world)
    assert "without room for more memory" in str(await refused(world, messages.Change("memory.guest", "", {"guest": "1Gi"})))


async def test_setting_is_removed_and_the_others_stay(world: World) -> None:
    await world.domain.handle(SYNC)
    for request in (LIMIT, DOWN, dataclasses.replace(LIMIT, device=DISK)):
        await world.domain.handle(request)
    assert settings(world) == {("disk.ioTune", "data"): "", ("disk.size", "data"): "0", ("interface.state", "default"): "down", **ONE}


async def test_change_is_compared_with_libvirt(world: World) -> None:
    """Another hand, or a failure after the call, may have left another value."""
    await world.domain.handle(SYNC)
    await world.domain.handle(LIMIT)
    await world.hypervisor.limit_disk(NAME, "vda", {})
    await world.domain.handle(LIMIT)
    assert changes(world) == ["limit disk vda"] * 3
    assert settings(world)["disk.ioTune", "data"] == "readBytesSec=1048576 totalIopsSec=500"


@pytest.mark.parametrize(
    "request_",
    [
        dataclasses.replace(LIMIT, name="other"),
        dataclasses.replace(DOWN, name="data"),
        dataclasses.replace(LIMIT, device={"name": "data", "ioTune": {"totalBytesSec": "much"}}),
        dataclasses.replace(LIMIT, device={"name": "data", "ioTune": 5}),
    ],
)
async def test_change_of_nothing_or_to_nonsense_is_invalid(world: World, request_: messages.Change) -> None:
    await world.domain.handle(SYNC)
    assert (await refused(world, request_)).reason == "Invalid"
    assert changes(world) == []


async def test_machine_with_xml_keeps_what_its_author_wrote(world: World) -> None:
    known = world.domain._record.known
    world.domain._record.known = dataclasses.replace(
        known, machine=dataclasses.replace(GUEST, domain_xml="<domain/>"), status=dataclasses.replace(known.status, started=True)
    )
    assert (await refused(world, LIMIT)).reason == "Invalid"


@pytest.mark.parametrize(("error", "reason"), [(HypervisorError("no"), "Failed"), (OperationTimeout("slow"), "Timeout")])
async def test_failed_change_is_refused_and_can_be_repeated(world: World, error: HypervisorError, reason: str) -> None:
    await world.domain.handle(SYNC)
    world.hypervisor.fail_next = error
    assert (await refused(world, LIMIT)).reason == reason
    assert settings(world)["disk.ioTune", "data"] == ""
    await world.domain.handle(LIMIT)
    assert settings(world)["disk.ioTune", "data"] != ""


async def test_guest_that_is_absent_or_leaves_is_not_changed(world: World) -> None:
    assert (await refused(world, LIMIT)).reason == "Conflict"
    await world.domain.handle(SYNC)
    await world.domain.handle(messages.Migrate("m1"))
    assert (await refused(world, LIMIT)).reason == "Conflict"
    assert changes(world) == []
