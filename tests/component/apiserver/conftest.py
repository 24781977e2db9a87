"""The API machinery in process, over memory, with TLS, serving widgets."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from apiserver.registry.cacher import changes, items
from apiserver.server import options, running
from apiserver.server.options import Times
from apiserver.server.running import Kinds, Process
from certs.files import write_file
from certs.issuing import Pair, Profile, issue, new_authority
from storage.memory import MemoryStorage
from storage.port import Storage
from tests.component.apiserver.widgets import WIDGETS, OldWidgetStrategy, WidgetStrategy

HOUR = timedelta(hours=1)
NAMESPACE = "acc"


@pytest.fixture(autouse=True)
def nobody_changes_what_the_cache_holds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(changes.Record, "cool", lambda _: None)
    items._warm.clear()
    yield
    for item in items._warm:
        assert item.object == json.loads(item.data), item.key


@dataclass
class Answer:
    code: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Api:
    url: str
    session: aiohttp.ClientSession
    strategy: WidgetStrategy
    storage: Storage
    path: str = WIDGETS.path(NAMESPACE)
    extra: dict[str, Any] = field(default_factory=dict)
    served: Process | None = None

    @property
    def process(self) -> Process:
        assert self.served is not None
        return self.served

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        if body is not None:
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            given.setdefault("Content-Type", "application/json")
        url = self.url + (path if path.startswith("/") else self.path + ("/" + path if path and not path.startswith("?") else path))
        async with self.session.request(method, url, data=body, headers=given, allow_redirects=False) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str = "", **headers: str) -> Answer:
        return await self.call("GET", path, **headers)

    async def make(self, body: Any, query: str = "") -> Any:
        answer = await self.call("POST", query, body)
        assert answer.code == 201, answer.body
        return answer.json

    async def patch(self, path: str, body: Any, kind: str = "merge-patch+json") -> Answer:
        return await self.call("PATCH", path, json.dumps(body).encode(), Content_Type=f"application/{kind}")

    @asynccontextmanager
    async def watch(self, query: str, **headers: str) -> AsyncIterator[AsyncIterator[Any]]:
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        async with self.session.get(f"{self.url}{self.path}?watch=1&{query}", headers=given) as response:
            assert response.status == 200, await response.read()
            yield (json.loads(line) async for line in response.content)


@dataclass
class Pki:
    directory: Path
    authority: Pair

    def issued(self, name: str, profile: Profile, authority: Pair | None = None) -> tuple[Path, Path]:
        pair = issue(authority or self.authority, profile, HOUR, datetime.now(UTC))
        certificate, key = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        write_file(certificate, pair.certificate)
        write_file(key, pair.key)
        return certificate, key

    @property
    def authority_file(self) -> Path:
        return self.directory / "ca.crt"

    def client(self, name: str | None = None, authority: Pair | None = None, groups: tuple[str, ...] = ()) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority_file))
        if name is not None:
            context.load_cert_chain(*self.issued(f"client-{name}", Profile(name, client=True, organizations=groups), authority))
        return context


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    directory = tmp_path_factory.mktemp("pki")
    authority = new_authority("test", HOUR, datetime.now(UTC))
    made = Pki(directory, authority)
    write_file(made.authority_file, authority.certificate)
    made.issued("server", Profile("server", dns_names=("localhost",), ip_addresses=("127.0.0.1",), server=True))
    return made


def flags(pki: Pki, *more: str) -> options.Options:
    return options.parse(
        [
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            f"--tls-cert-file={pki.directory / 'server.crt'}",
            f"--tls-private-key-file={pki.directory / 'server.key'}",
            f"--client-ca-file={pki.authority_file}",
            "--storage=memory",
            "--authentication-skip-lookup",
            "--authorization-mode=AlwaysAllow",
            "--shutdown-delay-duration=0s",
            *more,
        ]
    )


@asynccontextmanager
async def serving(
    pki: Pki,
    *more: str,
    strategy: WidgetStrategy | None = None,
    storage: Storage | None = None,
    versions: bool = False,
    times: Times | None = None,
) -> AsyncIterator[Api]:
    strategy = strategy or WidgetStrategy()
    kept = storage or MemoryStorage()
    strategies = (strategy, OldWidgetStrategy(strategy)) if versions else (strategy,)
    options = replace(flags(pki, *more), times=times or Times())
    async with AsyncExitStack() as stack:
        process = await running.built(options, lambda _: Kinds(strategies), kept, stack)
        host, port = await stack.enter_async_context(process.serving())
        connector = aiohttp.TCPConnector(ssl=pki.client("developer"), limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            api = Api(f"https://{host}:{port}", session, strategy, kept, served=process)
            while (await api.get("/readyz")).code != 200:
                pass
            yield api


@pytest.fixture
def strategy() -> WidgetStrategy:
    return WidgetStrategy()


@pytest.fixture
async def api(pki: Pki, strategy: WidgetStrategy) -> AsyncIterator[Api]:
    async with serving(pki, strategy=strategy) as made:
        yield made
