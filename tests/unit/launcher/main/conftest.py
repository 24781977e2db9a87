"""The pod for the tests of virt-launcher's life, with short waits.

Modules are imported where the pod is made: modules with mutants (``make mutants``) must not be loaded before their tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fakes.pod import overlays, pod_directories  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from launcher.main.decisions.times import Times
    from tests.unit.launcher.main.world import World


@pytest.fixture
async def world(tmp_path: Path, times: Times) -> AsyncIterator[World]:
    from tests.unit.launcher.main.world import World

    world = World(tmp_path, times)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(world.run())
        yield world
        task.cancel()


@pytest.fixture
def times() -> Times:
    """Return short waits for virt-launcher; a test's parameter ``times`` overrides them."""
    from tests.unit.launcher.main.world import QUICK

    return QUICK
