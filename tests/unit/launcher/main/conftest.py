"""The pod that the tests of its life work with, with short waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from launcher.main import agent, departure, life, preparation, stopping, watching
from tests.unit.launcher.main.world import World


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(stopping, "STOP_SECONDS", 0.01)
    monkeypatch.setattr(agent, "AGENT_SECONDS", 0.01)
    monkeypatch.setattr(agent, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(preparation, "RETRY_SECONDS", 0.01)
    for name in ("PROGRESS_SECONDS", "SETTLE_SECONDS"):
        monkeypatch.setattr(departure, name, 0.01)
    monkeypatch.setattr(life, "PRESS_SECONDS", 0.03)
    world = World(tmp_path)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(world.run())
        yield world
        task.cancel()
