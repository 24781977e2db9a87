from __future__ import annotations

import asyncio
import dataclasses

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import HypervisorError, MigrationFailed, OperationTimeout, Progress, Unavailable
from launcher.main.decisions import life, power_off
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages
from tests.unit.launcher.main.world import NAME, PREPARE, QUICK, RELEASE, SYNC, Call, World, hangs, state_of


async def refused(world: World, request: messages.Action) -> RequestRefused:
    with pytest.raises(RequestRefused) as found:
        await world.domain.handle(request)
    return found.value


@pytest.mark.parametrize("request_", [messages.Sync(SYNC.machine, paused=True), SYNC, PREPARE], ids=["paused", "running", "target"])
async def test_sigterm_at_the_end_of_a_start_ends_the_pod(world: World, request_: messages.Action) -> None:
    """Otherwise it is lost: no wait is left that it could interrupt."""

    async def and_sigterm(call: Call) -> None:
        await call()
        world.domain.terminate()

    world.hypervisor.intercept("ready" if request_ is PREPARE else "create", and_sigterm)
    assert (await refused(world, request_)).reason == "Conflict"
    await world.ends("destroyed")
    assert world.status.ending is not None
    assert world.status.ending.message == life.NOT_RUN
    assert not [domain for domain in world.hypervisor.domains.values() if domain.active]


async def test_sigterm_when_a_disk_is_missing_ends_the_pod(world: World) -> None:
    world.network.looked = world.domain.terminate
    source = {"plugin": "p", "served": {"protocol": "nbd", "size": 512, "export": "", "liveMigration": True}}
    domain = {**SYNC.machine.domain, "devices": {"disks": [{"name": "data", "type": "Plugin", "source": source}]}}
    assert (await refused(world, messages.Sync(dataclasses.replace(SYNC.machine, domain=domain)))).reason == "Conflict"
    await world.ends("destroyed")


async def test_sigterm_when_a_start_fails_does_not_wait_for_libvirtd(world: World) -> None:
    async def failing(_create: Call) -> None:
        world.domain.terminate()
        raise HypervisorError("no such device")

    world.hypervisor.intercept("create", failing)
    world.hypervisor.intercept("destroy", hangs)
    async with asyncio.timeout(30):
        await refused(world, SYNC)
    await world.ends("destroyed")


async def test_a_second_sigterm_changes_nothing(world: World) -> None:
    creating = asyncio.Event()

    async def hanging(_create: Call) -> None:
        creating.set()
        await asyncio.Event().wait()

    async def destroyed(_destroy: Call) -> None:
        world.domain.terminate()

    world.hypervisor.intercept("create", hanging)
    world.hypervisor.intercept("destroy", destroyed)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(refused(world, SYNC))
        await creating.wait()
        world.domain.terminate()
        world.domain.terminate()
    assert asked.result().reason == "Conflict"
    await world.ends("destroyed")


@pytest.mark.parametrize("times", [dataclasses.replace(QUICK, release=0.02)])
async def test_a_copy_that_is_being_released_is_not_destroyed(world: World) -> None:
    """It is the only copy: the source's QEMU has ended. Destroying it would deny the guest its grace period."""
    await world.domain.handle(messages.PrepareMigrationTarget("m1", dataclasses.replace(SYNC.machine, grace_seconds=30.0)))
    world.hypervisor.become(NAME, State.PAUSED, "user")
    await world.until(lambda: state_of(world) == "arrived")
    released = asyncio.Event()

    async def slowly(resume: Call) -> None:
        await released.wait()
        await resume()

    world.hypervisor.intercept("resume", slowly)
    async with asyncio.TaskGroup() as group:
        group.create_task(world.domain.handle(RELEASE))
        await asyncio.sleep(0.01)
        world.domain.terminate()
        await asyncio.sleep(0.1)
        assert world.hypervisor.domains[NAME].state is State.PAUSED
        released.set()
    assert state_of(world) == "succeeded"
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    world.hypervisor.become(NAME, State.SHUTOFF, "shutdown")
    await world.ends("shutdown-requested")


@pytest.mark.parametrize("times", [dataclasses.replace(QUICK, release=20.0)])
async def test_copy_arriving_while_libvirtd_is_away_is_kept(world: World) -> None:
    """It may be the only copy; the last successful observation is too old to end the target."""
    await world.domain.handle(messages.PrepareMigrationTarget("m1", dataclasses.replace(SYNC.machine, grace_seconds=30.0)))
    await asyncio.sleep(0.03)
    world.hypervisor.connect(connected=False)
    world.hypervisor.become(NAME, State.PAUSED, "user")
    world.domain.terminate()
    await asyncio.sleep(0.05)
    assert not world.over
    world.hypervisor.connect(connected=True)
    await world.domain.handle(RELEASE)
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    world.hypervisor.become(NAME, State.SHUTOFF, "shutdown")
    await world.ends("shutdown-requested")


async def test_target_without_libvirtd_ends_after_its_grace_period(world: World) -> None:
    await world.domain.handle(messages.PrepareMigrationTarget("m1", dataclasses.replace(SYNC.machine, grace_seconds=0.2)))
    world.hypervisor.connect(connected=False)
    world.domain.terminate()
    await world.until(lambda: world.over)
    assert world.status.ending is None


@pytest.mark.parametrize("times", [dataclasses.replace(QUICK, give_up=0.1)])
@pytest.mark.parametrize("call", ["destroy", "observe"])
async def test_a_libvirtd_that_hangs_is_given_up_like_one_that_fails(world: World, call: str) -> None:
    """The kubelet would kill the pod before it reports its end."""
    await world.domain.handle(messages.Sync(dataclasses.replace(SYNC.machine, grace_seconds=0.1)))
    world.hypervisor.intercept(call, hangs)
    world.domain.terminate()
    await world.ends("destroyed")
    assert world.status.ending is not None
    assert world.status.ending.message == power_off.GAVE_UP


async def test_guest_with_a_hanging_agent_is_destroyed_in_time(world: World) -> None:
    await world.domain.handle(messages.Sync(dataclasses.replace(SYNC.machine, grace_seconds=0.1)))
    world.hypervisor.become(NAME, State.RUNNING, "booted", agent=True)
    world.hypervisor.intercept("press_power_button", hangs)
    world.domain.terminate()
    await world.ends("destroyed")
    assert world.hypervisor.domains[NAME].state is State.SHUTOFF


async def leaving(world: World) -> None:
    await world.domain.handle(SYNC)
    await world.domain.handle(messages.Migrate("m1"))
    await world.until(lambda: world.hypervisor.migrating)


async def test_guest_paused_when_its_migration_fails_resumes(world: World) -> None:
    await leaving(world)

    async def as_it_stays(suspend: Call) -> None:
        world.hypervisor.end_migration(NAME, MigrationFailed("the relay broke"))
        await asyncio.sleep(0.05)
        await suspend()

    world.hypervisor.intercept("suspend", as_it_stays)
    await world.domain.handle(messages.PauseForMigration("m1"))
    await world.until(lambda: state_of(world) == "failed")
    assert world.hypervisor.domains[NAME].state is State.RUNNING


async def test_pause_request_at_the_failure_does_not_pause_the_guest(world: World) -> None:
    await leaving(world)
    await world.domain.handle(messages.PauseForMigration("m1"))
    async with asyncio.TaskGroup() as group:

        async def and_asked_for(resume: Call) -> None:
            await resume()
            group.create_task(world.domain.handle(messages.PauseForMigration("m1")))
            await asyncio.sleep(0.05)

        world.hypervisor.intercept("resume", and_asked_for)
        world.hypervisor.end_migration(NAME, MigrationFailed("the relay broke"))
        await world.until(lambda: state_of(world) == "failed")
    assert world.hypervisor.domains[NAME].state is State.RUNNING


async def test_guest_with_unknown_pause_resumes_when_it_stays(world: World) -> None:
    await leaving(world)

    async def lost(suspend: Call) -> None:
        await suspend()
        raise OperationTimeout("suspend: no answer")

    world.hypervisor.intercept("suspend", lost)
    await refused(world, messages.PauseForMigration("m1"))
    world.hypervisor.end_migration(NAME, MigrationFailed("the relay broke"))
    await world.until(lambda: state_of(world) == "failed")
    assert world.hypervisor.domains[NAME].state is State.RUNNING


async def test_migration_ending_during_its_abort_is_cancelled(world: World) -> None:
    await leaving(world)

    async def slowly(_abort: Call) -> None:
        world.hypervisor.end_migration(NAME, MigrationFailed("operation failed: canceled by client"))
        await world.until(lambda: state_of(world) != "running")

    world.hypervisor.intercept("abort_job", slowly)
    await world.domain.handle(messages.AbortMigration("m1"))
    assert state_of(world) == "cancelled"


async def test_figures_go_on_after_one_that_libvirtd_did_not_tell(world: World) -> None:
    await leaving(world)
    asked = 0

    async def at_first_not(_progress: Call) -> Progress:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise Unavailable("the connection broke")
        return Progress(elapsed_milliseconds=1, memory_total_bytes=7)

    world.hypervisor.intercept("progress", at_first_not)
    await world.until(lambda: [each.memory_total_bytes for each in world.status.migrations] == [7])
    world.hypervisor.become(NAME, State.SHUTOFF, "migrated")
    world.hypervisor.end_migration(NAME)
    await world.ends("migrated")
