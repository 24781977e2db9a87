from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from launcher.domain.disk_origins import Origin
from launcher.domain.states import State
from launcher.hypervisor.port import HypervisorError
from launcher.main.lifecycle.device_growth import DeviceGrowth, device_sizes
from launcher.protocol import messages
from tests.unit.launcher.main.world import MACHINE, NAME, QUICK, World

DISK: dict[str, Any] = {"name": "data", "device": "cdrom", "target": {"bus": "scsi"}}
GUEST = dataclasses.replace(MACHINE, domain={**MACHINE.domain, "devices": {"disks": [DISK]}})


def a_claim(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "PersistentVolumeClaim", "source": {"name": name}, **more}


def test_only_devices_that_the_guest_writes_to_are_measured() -> None:
    ephemeral = a_claim("overlaid", source={"name": "c", "ephemeral": True})
    disks = [a_claim("data"), a_claim("file"), a_claim("broken"), a_claim("reads", readOnly=True), ephemeral]

    def size_of(origin: Origin) -> int | None:
        if origin.name == "broken":
            raise OSError
        return None if origin.name == "file" else 7

    assert device_sizes({"devices": {"disks": disks}}, size_of) == {"data": 7}
    assert device_sizes({"devices": {"disks": [{"name": "a", "type": "Unknown"}]}}, size_of) == {}


async def test_guest_is_told_once_and_again_after_a_failure(world: World) -> None:
    sizes = {"data": 1, "strange": 9}
    growth = DeviceGrowth(world.hypervisor, world.domain._watch.record, QUICK, lambda _domain: sizes)
    await growth.look()
    await world.domain.handle(messages.Sync(GUEST))
    for expected in (1, 1, 3):
        sizes["data"] = expected
        await growth.look()
        assert world.hypervisor.sizes == {"sda": expected}
    assert world.hypervisor.calls.count("resize disk sda") == 2
    sizes["data"] = 4
    world.hypervisor.fail_next = HypervisorError("busy")
    for expected in (3, 4):
        await growth.look()
        assert world.hypervisor.sizes == {"sda": expected}


@pytest.mark.parametrize("state", [State.SHUTOFF, State.CRASHED])
async def test_domain_without_a_guest_is_left_alone(world: World, state: State) -> None:
    growth = DeviceGrowth(world.hypervisor, world.domain._watch.record, QUICK, lambda _domain: {"data": 1})
    await world.domain.handle(messages.Sync(GUEST))
    world.hypervisor.become(NAME, state, "destroyed")
    await world.until(lambda: world.status.domain is None)
    await growth.look()
    assert world.hypervisor.sizes == {}
