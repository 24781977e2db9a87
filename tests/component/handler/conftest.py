from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.component.handler.world import World, a_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as made:
        yield made
