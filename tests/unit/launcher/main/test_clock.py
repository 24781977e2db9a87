from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from launcher.domain.states import State
from launcher.protocol import messages
from tests.unit.launcher.main.world import NAME, QUICK, SYNC, World


@pytest.mark.parametrize(("pause", "sets"), [(0.0, True), (60.0, False)])
async def test_the_agent_sets_the_clock_after_a_long_pause(tmp_path: Path, pause: float, sets: bool) -> None:
    world = World(tmp_path, dataclasses.replace(QUICK, clock_pause=pause))
    world.hypervisor.answers = {"guest-info": {}, "guest-set-time": {}}

    def set_times() -> int:
        return sum(command == "guest-set-time" for command, _ in world.hypervisor.questions)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(world.run())
        await world.domain.handle(SYNC)
        world.hypervisor.become(NAME, State.RUNNING, "booted", agent=True)
        await world.until(lambda: world.domain._agent.is_ready)
        await asyncio.sleep(0.05)
        before = set_times()
        await world.domain.handle(messages.Suspend())
        await world.domain.handle(messages.Resume())
        await asyncio.sleep(0.1)
        assert set_times() - before == int(sets)
        running.cancel()
