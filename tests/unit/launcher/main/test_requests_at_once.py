from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import HypervisorError
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages
from tests.unit.launcher.main.world import MACHINE, NAME, PREPARE, QUICK, RELEASE, SYNC, Call, World, arrived, state_of

PATIENT = dataclasses.replace(MACHINE, grace_seconds=30.0)


async def refused(world: World, request: messages.Action) -> RequestRefused:
    with pytest.raises(RequestRefused) as found:
        await world.domain.handle(request)
    return found.value


def held(world: World, method: str) -> Callable[[], None]:
    go = asyncio.Event()

    async def wait(call: Call) -> Any:
        await go.wait()
        return await call()

    world.hypervisor.intercept(method, wait)
    return go.set


async def test_a_second_sync_has_the_outcome_of_the_first(world: World) -> None:
    go = held(world, "ready")
    world.hypervisor.fail_next = HypervisorError("no such device")
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(refused(world, SYNC)) for _ in range(2)]
        await asyncio.sleep(0.02)
        go()
    assert [task.result().reason for task in asked] == ["Failed", "Failed"]


async def test_a_pod_that_becomes_a_target_starts_nothing_meanwhile(world: World) -> None:
    """Otherwise there would be two QEMU processes on one disk."""
    go = held(world, "ready")
    async with asyncio.TaskGroup() as group:
        group.create_task(world.domain.handle(PREPARE))
        await asyncio.sleep(0.02)
        started = group.create_task(refused(world, SYNC))
        again = group.create_task(world.domain.handle(PREPARE))
        await asyncio.sleep(0.02)
        assert not again.done()
        go()
    assert "target of a migration" in str(started.result())
    assert world.hypervisor.created == []
    assert world.served == [MACHINE]


async def test_a_pod_that_starts_a_guest_becomes_no_target_meanwhile(world: World) -> None:
    go = held(world, "ready")
    async with asyncio.TaskGroup() as group:
        group.create_task(world.domain.handle(SYNC))
        await asyncio.sleep(0.02)
        prepared = group.create_task(refused(world, PREPARE))
        await asyncio.sleep(0.02)
        assert not prepared.done()
        go()
    assert prepared.result().reason == "Conflict"
    assert state_of(world) == ""


async def test_a_guest_is_paused_after_its_start_and_not_within(world: World) -> None:
    go = world.hold_console()
    async with asyncio.TaskGroup() as group:
        group.create_task(world.domain.handle(SYNC))
        await world.until(lambda: world.status.started)
        group.create_task(world.domain.handle(messages.Suspend()))
        await asyncio.sleep(0.02)
        go()
    assert world.hypervisor.domains[NAME].state is State.PAUSED


async def test_a_guest_is_resumed_after_its_start_and_not_within(world: World) -> None:
    """Otherwise the first line on its serial port would be lost."""
    go = world.hold_console()
    async with asyncio.TaskGroup() as group:
        group.create_task(world.domain.handle(messages.Sync(MACHINE, paused=True)))
        await world.until(lambda: world.status.started)
        group.create_task(world.domain.handle(messages.Resume()))
        await asyncio.sleep(0.02)
        assert world.hypervisor.domains[NAME].state is State.PAUSED
        go()
    assert world.hypervisor.domains[NAME].state is State.RUNNING


async def test_a_guest_does_not_leave_within_its_start(world: World) -> None:
    go = world.hold_console()
    async with asyncio.TaskGroup() as group:
        group.create_task(world.domain.handle(SYNC))
        await world.until(lambda: world.status.started)
        group.create_task(world.domain.handle(messages.Migrate("m1")))
        await asyncio.sleep(0.02)
        assert not world.hypervisor.migrating
        assert state_of(world) == ""
        go()
    await world.until(lambda: world.hypervisor.migrating)
    world.hypervisor.end_migration(NAME)


@pytest.mark.parametrize("paused", [False, True], ids=["started", "resumed"])
async def test_a_guest_that_may_run_already_has_its_grace_period(
    world: World,
    *,
    paused: bool,
) -> None:
    """libvirt was called and has not answered."""
    if paused:
        await world.domain.handle(messages.Sync(PATIENT, paused=True))
    go = held(world, "resume")
    async with asyncio.TaskGroup() as group:
        group.create_task(world.domain.handle(messages.Resume() if paused else messages.Sync(PATIENT)))
        await world.until(lambda: world.status.started)
        await asyncio.sleep(0.03)
        world.domain.terminate()
        await asyncio.sleep(0.03)
        go()
    assert "destroy" not in world.hypervisor.calls
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    world.hypervisor.become(NAME, State.SHUTOFF, "shutdown")
    await world.ends("shutdown-requested")


@pytest.mark.parametrize("times", [dataclasses.replace(QUICK, console=0.02)])
async def test_guest_runs_though_its_serial_port_is_unreachable(world: World) -> None:
    world.hold_console()
    await world.domain.handle(SYNC)
    assert world.hypervisor.domains[NAME].state is State.RUNNING
    assert world.status.ending is None


async def test_the_answer_to_a_release_says_that_the_guest_runs(world: World) -> None:
    await arrived(world)
    await world.domain.handle(RELEASE)
    assert world.status.domain is not None
    assert world.status.domain.state == "running"


async def test_looks_are_taken_one_after_the_other(world: World) -> None:
    at_once = [0, 0]

    async def counted(observe: Call) -> Any:
        at_once[0] += 1
        at_once[1] = max(at_once)
        await asyncio.sleep(0.005)
        at_once[0] -= 1
        return await observe()

    await world.domain.handle(SYNC)
    world.hypervisor.intercept("observe", counted)
    for _ in range(3):
        await world.domain.handle(messages.Suspend())
        await world.domain.handle(messages.Resume())
    assert at_once[1] == 1
