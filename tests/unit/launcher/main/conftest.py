"""The pod that the tests of its life work with, with short waits.

Modules are imported where the pod is made: those whose mutants are run (``make mutants``) may not be there before their tests are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from launcher.main.times import Times
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
    """Return the times of the world's parts; a test that needs others gives them as its parameter ``times``."""
    from tests.unit.launcher.main.world import QUICK

    return QUICK


@pytest.fixture
def pod_directories(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what has directories of the pod (``layout.…_DIRECTORY``) be elsewhere.

    The file system of its container is virt-launcher's environment: QEMU's XML names the same paths, and no test has them.
    """
    from apiserver.apis.virt import layout

    def move(**directories: Path) -> None:
        for name, path in directories.items():
            monkeypatch.setattr(layout, f"{name}_DIRECTORY", str(path))

    return move


@pytest.fixture
def overlays(tmp_path: Path, pod_directories: Callable[..., None]) -> Path:
    """Return the directory of the pod's overlays, of which none is made where it exists."""
    pod_directories(OVERLAYS=tmp_path)
    return tmp_path
