"""Implementations that the contract suites run over."""

import itertools
from collections.abc import AsyncIterator

import pytest

from storage.etcd.store import EtcdStorage, Settings
from storage.memory import MemoryStorage
from storage.port import Storage
from tests.fakes.etcd_server import EtcdServer, etcd_server

__all__ = ["etcd_server"]

numbers = itertools.count()


@pytest.fixture(params=["memory", "etcd"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Storage]:
    made: Storage
    if request.param == "memory":
        made = MemoryStorage()
    else:
        server: EtcdServer = request.getfixturevalue("etcd_server")
        made = EtcdStorage(Settings((server.endpoint,), prefix=f"/test{next(numbers)}/"))
    yield made
    await made.close()
