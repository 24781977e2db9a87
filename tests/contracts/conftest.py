"""Implementations that the contract suites run over."""

import base64
import itertools
from collections.abc import AsyncIterator

import pytest

from storage.encryption.configuration import parse
from storage.encryption.store import EncryptedStorage
from storage.etcd.store import EtcdStorage, Settings
from storage.memory import MemoryStorage
from storage.port import Storage
from tests.fakes.etcd_server import EtcdServer, etcd_server

__all__ = ["etcd_server"]

numbers = itertools.count()


ENCRYPTED = parse(f"""
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: ["*.*"]
  providers: [{{aesgcm: {{keys: [{{name: one, secret: {base64.b64encode(bytes(range(32))).decode()}}}]}}}}]
""").chain("any", "any")


@pytest.fixture(params=["memory", "etcd", "encrypted memory", "encrypted etcd"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Storage]:
    made: Storage
    if request.param.endswith("memory"):
        made = MemoryStorage()
    else:
        server: EtcdServer = request.getfixturevalue("etcd_server")
        made = EtcdStorage(Settings((server.endpoint,), prefix=f"/test{next(numbers)}/"))
    if request.param.startswith("encrypted"):
        made = EncryptedStorage(made, lambda _: ENCRYPTED)
    yield made
    await made.close()
