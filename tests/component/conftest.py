from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from apiserver.kubectl.access import Access
from tests.fakes.streams import FakeStreams


@pytest.fixture
def server() -> FakeStreams:
    return FakeStreams()


@pytest.fixture
async def url(server: FakeStreams) -> AsyncIterator[str]:
    async with server.serving() as served:
        yield served


@pytest.fixture
def way(url: str) -> Access:
    return Access(server=url, namespace="default", headers=(("Authorization", "Bearer secret"),))
