"""The pod that the tests of its life work with, with short waits.

Modules are imported where the pod is made: those whose mutants are run (``make mutants``) may not be there before their tests are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.launcher.main.world import World


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    from launcher.main import agent, life, outgoing_migration, preparation, stopping, watching
    from tests.unit.launcher.main.world import World

    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(stopping, "STOP_SECONDS", 0.01)
    monkeypatch.setattr(agent, "AGENT_SECONDS", 0.01)
    monkeypatch.setattr(agent, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(preparation, "RETRY_SECONDS", 0.01)
    for name in ("PROGRESS_SECONDS", "SETTLE_SECONDS"):
        monkeypatch.setattr(outgoing_migration, name, 0.01)
    monkeypatch.setattr(life, "PRESS_SECONDS", 0.03)
    world = World(tmp_path)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(world.run())
        yield world
        task.cancel()
