from __future__ import annotations

import asyncio

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import GuestFacts, Observation
from launcher.main import agent
from launcher.main.agent import Agent
from tests.fakes.hypervisor import FakeHypervisor

FACTS = GuestFacts(hostname="guest")


async def test_an_agent_is_asked_as_soon_as_it_connects_and_missed_as_soon_as_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "AGENT_SECONDS", 60.0)
    hypervisor = FakeHypervisor()
    hypervisor.facts = FACTS
    seen: asyncio.Queue[GuestFacts | None] = asyncio.Queue()
    asking = Agent(hypervisor, answered=seen.put_nowait, gone=lambda: seen.put_nowait(None))

    def becomes(*, connected: bool) -> Observation:
        hypervisor.become("guest", State.RUNNING, "booted", agent=connected)
        return hypervisor.domains["guest"]

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(asking.run())
        asking.take(becomes(connected=True))
        assert await seen.get() == FACTS
        asking.take(becomes(connected=True))  # nothing new: its turn comes in a minute
        asking.take(becomes(connected=False))
        assert await seen.get() is None
        running.cancel()
    assert seen.empty()
