from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from launcher.domain.states import State
from launcher.main.decisions import known
from launcher.main.lifecycle.record import Record
from launcher.protocol import messages
from tests.unit.launcher.main.world import MACHINE, NAME, QUICK, SYNC, World


def test_each_change_of_the_status_is_told_and_nothing_else() -> None:
    told: list[int] = []
    record = Record(qemu_log=lambda _name: Path("/nonexistent"), status_changed=lambda: told.append(record.known.status.revision))
    record.take(known.adopted, MACHINE)
    assert told == []
    record.take(known.viewed, 2)
    record.take(known.viewed, 2)
    record.take(known.created)
    assert told == [1, 2]


@pytest.mark.parametrize("times", [dataclasses.replace(QUICK, look=60.0)])
async def test_an_event_is_looked_at_once(world: World) -> None:
    """Otherwise virt-launcher would query libvirtd without a pause."""
    await world.domain.handle(SYNC)
    await asyncio.sleep(0.03)
    before = world.hypervisor.calls.count("observe")
    world.hypervisor.become(NAME, State.PAUSED, "I/O error")
    await asyncio.sleep(0.05)
    assert world.hypervisor.calls.count("observe") - before == 1


async def test_a_stop_that_two_ask_for_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="launcher")
    await world.domain.handle(SYNC)
    await world.domain.handle(messages.Shutdown(30.0))
    world.domain.terminate()
    assert [each.message for each in caplog.records].count("the guest must power off") == 1
