from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from apiserver.server import running
from apiserver.server.options import Times
from apiserver.server.running import Kinds
from storage.memory import MemoryStorage
from tests.component.apiserver.conftest import Api, Pki, flags
from tests.component.apiserver.test_delegation import NAMESPACES, write_kubeconfig
from tests.component.apiserver.widgets import OldWidgetStrategy, WidgetStrategy
from tests.fakes.kubeapi import FakeAPI

Json = dict[str, Any]
Reply = Callable[[Json], Json | web.Response]
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{REGISTRATION}/mutatingwebhookconfigurations"
VALIDATING = f"{REGISTRATION}/validatingwebhookconfigurations"
RULE = {"operations": ["*"], "apiGroups": ["example.test"], "apiVersions": ["*"], "resources": ["widgets", "widgets/*"], "scope": "*"}


def allow(review: Json, **more: Any) -> Json:
    response = {"uid": review["request"]["uid"], "allowed": True, **more}
    return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}


def deny(review: Json, **status: Any) -> Json:
    return allow(review, allowed=False, **({"status": status} if status else {}))


def patch(review: Json, *operations: Json) -> Json:
    return allow(review, patchType="JSONPatch", patch=base64.b64encode(json.dumps(operations).encode()).decode())


def label(review: Json, key: str, value: str) -> Json:
    if not review["request"]["object"]["metadata"].get("labels"):
        return patch(review, {"op": "add", "path": "/metadata/labels", "value": {key: value}})
    return patch(review, {"op": "add", "path": f"/metadata/labels/{key}", "value": value})


@dataclass
class Hook:
    reply: Reply
    reviews: list[Json] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    times: list[tuple[float, float]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def requests(self) -> list[Json]:
        return [each["request"] for each in self.reviews]


@dataclass
class World:
    pki: Pki
    directory: Path
    kube: FakeAPI
    port: int = 0
    hooks: dict[str, Hook] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    def hook(self, name: str, reply: Reply = allow, **more: Any) -> Json:
        self.hooks[name] = Hook(reply)
        made = {
            "name": f"{name}.example.test",
            "clientConfig": {"url": f"https://127.0.0.1:{self.port}/{name}", "caBundle": self.bundle},
            "rules": [RULE],
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "admissionReviewVersions": ["v1"],
        }
        return made | more

    @property
    def bundle(self) -> str:
        return base64.b64encode(self.pki.authority.certificate).decode()

    async def mutating(self, *hooks: Json, name: str = "mutating") -> None:
        given = [{"reinvocationPolicy": "Never"} | each for each in hooks]
        await self.kube.put(MUTATING, {"metadata": {"name": name}, "webhooks": given})

    async def validating(self, *hooks: Json, name: str = "validating") -> None:
        await self.kube.put(VALIDATING, {"metadata": {"name": name}, "webhooks": list(hooks)})

    @asynccontextmanager
    async def api(self, *more: str, versions: bool = False, ready: bool = True, times: Times | None = None) -> AsyncIterator[Api]:
        strategy = WidgetStrategy()
        strategies = (strategy, OldWidgetStrategy(strategy)) if versions else (strategy,)
        async with self.kube.serving() as config:
            kubeconfig = write_kubeconfig(self.directory / "kubeconfig", config)
            storage = MemoryStorage()
            options = replace(flags(self.pki, f"--kubeconfig={kubeconfig}", *more), times=times or Times())
            async with running.running(options, lambda _: Kinds(strategies), storage) as (host, port):
                connector = aiohttp.TCPConnector(ssl=self.pki.client("developer"), limit=0)
                async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(20):
                    api = Api(f"https://{host}:{port}", session, strategy, storage)
                    while ready and (await api.get("/readyz")).code != 200:
                        await asyncio.sleep(0.01)
                    yield api

    async def answer(self, request: web.Request) -> web.Response:
        name = request.path.strip("/")
        hook = self.hooks[name]
        self.order.append(name)
        hook.queries.append(request.query_string)
        hook.headers.append(dict(request.headers))
        review = await request.json()
        hook.reviews.append(review)
        began = time.monotonic()
        await asyncio.sleep(hook.seconds)
        hook.times.append((began, time.monotonic()))
        answer = hook.reply(review)
        return answer if isinstance(answer, web.Response) else web.json_response(answer)


@asynccontextmanager
async def world(pki: Pki, directory: Path) -> AsyncIterator[World]:
    made = World(pki, directory, FakeAPI())
    for name, labels in (("acc", {"team": "a"}), ("other", {})):
        await made.kube.put(NAMESPACES, {"metadata": {"name": name, "labels": labels}, "status": {"phase": "Active"}})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.directory / "server.crt", pki.directory / "server.key")
    context.load_verify_locations(cafile=pki.authority_file)
    context.verify_mode = ssl.CERT_OPTIONAL
    app = web.Application()
    app.router.add_post("/{name}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    made.port = runner.addresses[0][1]
    try:
        yield made
    finally:
        await runner.cleanup()
