from __future__ import annotations

import dataclasses
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from apiserver.apis.virt.places import layout
from launcher.domain.states import State
from launcher.hypervisor.port import NO_SPACE, DiskFault, Observation
from launcher.main.decisions import full_disks
from launcher.main.decisions.full_disks import ENOUGH_BYTES, Tries
from launcher.main.decisions.times import Times
from launcher.main.lifecycle import free_space
from launcher.protocol import messages
from tests.unit.launcher.main.world import NAME, QUICK, World

CLAIM: dict[str, Any] = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "c"}}
BLANK: dict[str, Any] = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "1Mi"}}
SERVED: dict[str, Any] = {"name": "net", "type": "NBD", "source": {"host": "nbd.example"}}
DOMAIN = {"memory": {"guest": "128Mi"}, "devices": {"disks": [CLAIM, BLANK, SERVED]}}
MACHINE = messages.Machine("default", "testvm", "u-1", DOMAIN, "qemu", (), 0.4)
PAUSED = Observation(NAME, "u", "qemu", State.PAUSED, "I/O error", disk_errors=(("vda", NO_SPACE),))


@pytest.mark.parametrize(
    ("seen", "full"),
    [
        (PAUSED, True),
        (dataclasses.replace(PAUSED, disk_errors=(("vda", NO_SPACE), ("vdb", NO_SPACE))), True),
        (dataclasses.replace(PAUSED, disk_errors=(("vda", NO_SPACE), ("vdb", "I/O error"))), False),
        (dataclasses.replace(PAUSED, disk_errors=()), False),
        (dataclasses.replace(PAUSED, state=State.RUNNING), False),
        (None, False),
    ],
)
def test_only_a_guest_that_lacks_nothing_but_room_is_waited_for(seen: Observation | None, full: bool) -> None:
    assert full_disks.is_full(seen) is full


def test_tries_become_rarer_and_never_end() -> None:
    tries, now, pauses = Tries(), 100.0, []
    for _ in range(20):
        tries = full_disks.next_tries(dataclasses.replace(tries, offered=True), now, full=True, tried=True)
        pauses.append(tries.next - now)
        now = tries.next
    assert pauses[:7] == [10, 20, 40, 80, 160, 300, 300]
    assert set(pauses[6:]) == {300}


def test_unused_offer_of_room_is_no_failure() -> None:
    offered = Tries(2, offered=True, next=50.0)
    assert full_disks.next_tries(offered, 60.0, full=True, tried=False) == Tries(2, offered=True, next=50.0, stood=60.0)


def test_long_run_resets_the_tries_and_a_short_one_does_not() -> None:
    failed = Tries(3, offered=True, next=200.0, stood=100.0)
    assert full_disks.next_tries(failed, 159.0, full=False, tried=True) == Tries(3, offered=False, next=200.0, stood=100.0)
    assert full_disks.next_tries(failed, 160.0, full=False, tried=True) == Tries()


@pytest.mark.parametrize(
    ("rooms", "now", "worth"),
    [
        ({"data": ENOUGH_BYTES}, 10.0, True),
        ({"data": ENOUGH_BYTES}, 9.9, False),
        ({"data": ENOUGH_BYTES - 1}, 10.0, False),
        ({"other": 0}, 10.0, True),
        ({"data": ENOUGH_BYTES, "more": 0}, 10.0, False),
    ],
)
def test_a_try_is_worth_it_where_file_systems_have_room(rooms: dict[str, int], now: float, worth: bool) -> None:
    assert full_disks.is_worth_a_try(Tries(next=10.0), now, frozenset({"data", "more"}), rooms) is worth


@pytest.mark.parametrize(
    ("full", "rooms", "age", "told"),
    [
        (True, {"data": 0}, 1e6, True),
        (True, {"data": ENOUGH_BYTES}, 59, True),
        (True, {"data": ENOUGH_BYTES}, 60, False),
        (True, {}, 599, True),
        (True, {}, 600, False),
        (False, {"data": ENOUGH_BYTES}, 599, True),
        (False, {"data": ENOUGH_BYTES}, 600, False),
    ],
)
@pytest.mark.parametrize("ignored", [True, False])
def test_an_error_is_told_as_long_as_it_means_anything(full: bool, rooms: dict[str, int], age: float, told: bool, ignored: bool) -> None:
    fault = DiskFault("vda", "I/O error", ignored, 1000.0)
    found = full_disks.faults_to_tell({"data": fault}, {"data": 1000.0} if full else {}, rooms, 1000.0 + age)
    assert found == ((messages.DiskFault("data", full=full, ignored=ignored),) if told else ())


@pytest.mark.parametrize(
    ("error", "before", "rooms", "full"),
    [
        ("I/O error", {}, {"data": ENOUGH_BYTES - 1}, {"data": 110.0}),
        ("I/O error", {"data": 108.0}, {"data": ENOUGH_BYTES - 1}, {"data": 110.0}),
        ("I/O error", {}, {"data": ENOUGH_BYTES}, {}),
        ("I/O error", {"data": 108.0}, {"data": ENOUGH_BYTES}, {"data": 108.0}),  # it had no space when it failed
        ("I/O error", {"data": 97.0}, {"data": ENOUGH_BYTES}, {"data": 97.0}),  # as far as known, none here either
        ("I/O error", {"data": 96.9}, {"data": ENOUGH_BYTES}, {}),  # that was another error
        ("I/O error", {}, {}, {}),
        (NO_SPACE, {}, {"data": ENOUGH_BYTES}, {"data": 110.0}),
    ],
)
def test_full_disk_is_recognized_by_its_file_systems_room(
    error: str, before: dict[str, float], rooms: dict[str, int], full: dict[str, float]
) -> None:
    found = full_disks.full_since({**before, "gone": 107.0}, {"data": DiskFault("vda", error, False, 107.0)}, rooms, 110.0)
    assert found == full


def test_disks_lie_where_what_the_guest_writes_goes() -> None:
    assert free_space.places(DOMAIN) == {
        "data": PurePosixPath(layout.DISKS_DIRECTORY, "data"),
        "scratch": PurePosixPath(layout.OVERLAYS_DIRECTORY),
    }
    assert free_space.places({"devices": {"disks": [{"name": "a", "type": "Unknown", "source": {}}]}}) == {}


def test_a_device_and_what_is_not_there_tell_no_room(tmp_path: Path) -> None:
    assert (free_space.free(PurePosixPath(tmp_path)) or 0) > 0
    assert free_space.free(PurePosixPath(tmp_path / "absent")) is None


@pytest.fixture
def times() -> Times:
    return dataclasses.replace(QUICK, relapse=0.0, space_look=0.01, space_try=(0.02, 0.02))


@pytest.fixture
def storage(world: World, overlays: Path) -> dict[str, int]:
    """Give disk ``data`` an overlay on a full file system; return the free bytes by disk, which tests change."""
    (overlays / "data.qcow2").touch()
    world.free["data"] = 0
    return world.free


DISKLESS = dataclasses.replace(MACHINE, domain={"memory": {"guest": "128Mi"}, "devices": {"disks": [BLANK | {"name": "data"}]}})


def stop(world: World, *errors: tuple[str, str]) -> None:
    world.hypervisor.domains[NAME] = dataclasses.replace(world.hypervisor.domains[NAME], disk_errors=errors)
    world.hypervisor.become(NAME, State.PAUSED, "I/O error")


async def looks(world: World) -> None:
    known = world.domain._watch.record
    await world.until(lambda: known.known.domain is not None and bool(known.known.domain.disk_errors))
    for _ in range(2):
        await world.domain._free_space.look()


async def test_resuming_is_offered_whenever_there_is_room_again(world: World, storage: dict[str, int]) -> None:
    await world.domain.handle(messages.Sync(DISKLESS))
    stop(world, ("vda", NO_SPACE))
    await looks(world)
    assert not world.status.has_room
    assert world.hypervisor.domains[NAME].state is State.PAUSED

    storage["data"] = ENOUGH_BYTES
    await world.until(lambda: world.status.has_room)
    assert world.hypervisor.domains[NAME].state is State.PAUSED  # whether a user paused the VM is unknown here
    await world.domain.handle(messages.Resume())
    assert (world.hypervisor.domains[NAME].state, world.status.has_room) == (State.RUNNING, False)

    stop(world, ("vda", NO_SPACE))
    await world.until(lambda: world.status.has_room)


async def test_an_error_that_is_not_of_room_is_nobodys_to_try(world: World, storage: dict[str, int]) -> None:
    storage["data"] = ENOUGH_BYTES
    await world.domain.handle(messages.Sync(DISKLESS))
    stop(world, ("vda", "I/O error"))
    await looks(world)
    assert not world.status.has_room


async def test_failing_disks_are_named_until_there_is_room(world: World, storage: dict[str, int]) -> None:
    await world.domain.handle(messages.Sync(DISKLESS))
    faults = tuple(DiskFault(disk, "I/O error", False, float("-inf")) for disk in ("vda", "vdz"))
    world.hypervisor.domains[NAME] = dataclasses.replace(world.hypervisor.domains[NAME], disk_faults=faults)
    world.hypervisor.become(NAME, State.RUNNING, "booted")
    await world.until(lambda: world.status.disk_faults == (messages.DiskFault("data", full=True),))
    storage["data"] = ENOUGH_BYTES
    await world.until(lambda: world.status.disk_faults == ())
