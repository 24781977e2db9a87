from __future__ import annotations

import dataclasses

import pytest

from launcher.domain.states import State
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages
from tests.unit.launcher.main.world import NAME, PREPARE, SYNC, World


async def refused(world: World, request: messages.Action) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        await world.domain.handle(request)
    return caught.value


async def test_a_pod_that_is_ending_becomes_no_target(world: World) -> None:
    world.domain.terminate()

    assert (await refused(world, PREPARE)).reason == "Conflict"
    assert world.served == []
    assert world.status.migrations == ()


async def test_a_guest_that_is_asked_to_power_off_is_not_migrated(world: World) -> None:
    await world.domain.handle(SYNC)
    await world.domain.handle(messages.Shutdown(60.0))

    assert (await refused(world, messages.Migrate("m1"))).reason == "Conflict"
    assert not world.hypervisor.migrating
    assert world.status.migrations == ()


async def test_a_guest_with_a_disk_that_stays_behind_is_not_migrated(world: World) -> None:
    world.network.ports = {10809}
    cached = {"name": "root", "type": "NBD", "source": {"host": "nbd.example"}, "driver": {"cache": "writeback"}}
    machine = dataclasses.replace(SYNC.machine, domain={**SYNC.machine.domain, "devices": {"disks": [cached]}})
    await world.domain.handle(messages.Sync(machine))

    found = await refused(world, messages.Migrate("m1"))

    assert (found.reason, str(found)) == (
        "Invalid",
        "cannot migrate: data of the disk 'root' may be only in the page cache of its node (driver.cache)",
    )
    assert not world.hypervisor.migrating


async def test_the_source_of_a_migration_has_nothing_to_release(world: World) -> None:
    await world.domain.handle(SYNC)
    await world.domain.handle(messages.Migrate("m1"))
    await world.until(lambda: world.hypervisor.migrating)
    world.hypervisor.end_migration(NAME)
    await world.ends("migrated")

    assert (await refused(world, messages.ReleaseMigration("m1"))).reason == "Conflict"


async def test_foreign_domain_is_left_alone(world: World) -> None:
    world.hypervisor.become(NAME, State.RUNNING, "booted")

    assert "exists already" in str(await refused(world, SYNC))
    await world.ends("start-failed")
    assert world.hypervisor.domains[NAME].state is State.RUNNING
    assert "destroy" not in world.hypervisor.calls
