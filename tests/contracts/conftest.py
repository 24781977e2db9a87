"""Implementations that the contract suites run over."""

from collections.abc import AsyncIterator

import pytest

from storage.memory import MemoryStorage
from storage.port import Storage


@pytest.fixture(params=["memory"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Storage]:
    memory = MemoryStorage()
    yield memory
    await memory.close()
