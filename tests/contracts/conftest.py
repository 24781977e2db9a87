import base64
import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from storage.encryption.configuration import parse
from storage.encryption.store import EncryptedStorage
from storage.etcd.connection import Tls
from storage.etcd.store import EtcdStorage, Settings
from storage.memory import MemoryStorage
from storage.port import Storage
from tests.component.apiserver.conftest import pki
from tests.fakes.etcd_server import EtcdServer, etcd_server
from tests.fakes.etcd_tls import Authority

__all__ = ["etcd_server", "pki"]

numbers = itertools.count()


ENCRYPTED = parse(f"""
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: ["*.*"]
  providers: [{{aesgcm: {{keys: [{{name: one, secret: {base64.b64encode(bytes(range(32))).decode()}}}]}}}}]
""").chain("any", "any")


@pytest.fixture(scope="session")
def secure_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EtcdServer, Tls]]:
    directory, authority = tmp_path_factory.mktemp("secure-etcd"), Authority()
    server = EtcdServer(directory / "etcd", durable=False, tls=authority.issue(directory / "server", "etcd"))
    server.start()
    yield server, Tls(*authority.issue(directory / "client", "virt-api"), server_name="etcd.test")
    server.close()


@pytest.fixture(params=["memory", "etcd", "encrypted memory", "encrypted etcd over TLS"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Storage]:
    made: Storage
    if request.param.endswith("memory"):
        made = MemoryStorage()
    elif request.param == "etcd":
        server: EtcdServer = request.getfixturevalue("etcd_server")
        made = EtcdStorage(Settings((server.endpoint,), prefix=f"/test{next(numbers)}/"))
    else:
        secure: EtcdServer
        secure, tls = request.getfixturevalue("secure_etcd")
        made = EtcdStorage(Settings((secure.endpoint,), tls, prefix=f"/test{next(numbers)}/"))
    if request.param.startswith("encrypted"):
        made = EncryptedStorage(made, lambda _: ENCRYPTED)
    yield made
    await made.close()
