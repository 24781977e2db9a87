from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import pytest
import websocket
from aiohttp import web
from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.stream import ws_client

from apiserver.registry.generic.strategy import Destination
from apiserver.server import options, running
from apiserver.server.running import Kinds
from storage.memory import MemoryStorage
from tests.component.apiserver.widgets import WIDGETS, WidgetStrategy, widget
from tests.reference_server import environment
from tests.reference_server.certificates import ADMIN, HOST, Certificates
from tests.reference_server.environment import Environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAMESPACE: Final = "bench"
TAP: Final = f"{WIDGETS.path(NAMESPACE)}/w1/tap"
UPGRADE: Final = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw==",
}  # fmt: skip
EVIL: Final = "https://evil.example"
BROWSER: Final = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"}
NAMED: Final = "https://console.example"
RBAC: Final = "rbac.authorization.k8s.io/v1"
BINDINGS: Final = f"/apis/{RBAC}/namespaces/{NAMESPACE}/rolebindings"
ROLES: Final = f"/apis/{RBAC}/namespaces/{NAMESPACE}/roles"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    with environment.environment(tmp_path_factory.mktemp("streams")) as made:
        yield made


@dataclass
class Behind:
    dialled: int = 0

    async def echo(self, request: web.BaseRequest) -> web.StreamResponse:
        self.dialled += 1
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data)
        return socket


def grant(here: Environment, user: str, *verbs: str) -> None:
    rules = [{"apiGroups": [WIDGETS.group], "resources": ["*"], "verbs": list(verbs)}]
    here.ensure(ROLES, {"apiVersion": RBAC, "kind": "Role", "metadata": {"name": user}, "rules": rules})
    binding = {
        "apiVersion": RBAC,
        "kind": "RoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    here.ensure(BINDINGS, binding)


def flags(here: Environment) -> options.Options:
    made = here.certificates
    return options.parse(
        [
            f"--bind-address={HOST}", "--secure-port=0", "--storage=memory", "--shutdown-delay-duration=0s",
            f"--tls-cert-file={made.certificate('server')}", f"--tls-private-key-file={made.key('server')}",
            f"--client-ca-file={made.authority}", f"--kubeconfig={here.kubeconfig()}",
            f"--cors-allowed-origins=^{NAMED}$",
        ]
    )  # fmt: skip


def client(made: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(made.authority))
    context.load_cert_chain(made.certificate(ADMIN), made.key(ADMIN))
    return context


def dial_with_kubernetes_stream(here: Environment) -> ws_client.WSClient:
    configuration = Configuration()
    config.load_kube_config(str(here.kubeconfig()), client_configuration=configuration)
    opened = ws_client.websocket_call(configuration, "GET", here.kubernetes_url + TAP, headers={}, _preload_content=False)
    assert isinstance(opened, ws_client.WSClient)
    return opened


def watched_with_websocket_client(here: Environment) -> Any:
    address = here.kubernetes_url.replace("https", "wss")
    watch = websocket.create_connection(
        f"{address}{WIDGETS.path(NAMESPACE)}?watch=1", sslopt={"context": client(here.certificates)}, timeout=30
    )
    try:
        return json.loads(watch.recv())
    finally:
        watch.close()


@asynccontextmanager
async def aggregated(here: Environment, strategy: WidgetStrategy) -> AsyncIterator[tuple[Behind, aiohttp.ClientSession, str]]:
    behind, context = Behind(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(here.certificates.certificate("server"), here.certificates.key("server"))
    echo = web.Server(behind.echo)
    listening = await asyncio.get_running_loop().create_server(echo, HOST, 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    strategy.tap.destination = Destination(f"https://{HOST}:{port}/x", "localhost", client(here.certificates))
    connector = aiohttp.TCPConnector(ssl=client(here.certificates))
    async with (
        running.running(flags(here), lambda _: Kinds((strategy,)), MemoryStorage()) as (_, ours),
        aiohttp.ClientSession(here.kubernetes_url, connector=connector) as session,
    ):
        await asyncio.to_thread(here.aggregate, "ours", ours, version=WIDGETS.version, group=WIDGETS.group)
        async with session.post(WIDGETS.path(NAMESPACE), json=widget()) as answer:
            assert answer.status == 201, await answer.text()
        yield behind, session, f"https://{HOST}:{ours}"
    listening.close()
    await echo.shutdown(1)


async def refusal(session: aiohttp.ClientSession, user: str, **headers: str) -> tuple[int, Any]:
    async with session.get(TAP, headers={**UPGRADE, "Impersonate-User": user, **headers}) as answer:
        return answer.status, json.loads(await answer.read()) if answer.status != 101 else {"message": "it was opened"}


async def test_programs_with_an_origin_watch_and_open_streams(here: Environment) -> None:
    async with aggregated(here, WidgetStrategy()) as (behind, _, _):
        event = await asyncio.to_thread(watched_with_websocket_client, here)
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "w1")
        stream = await asyncio.to_thread(dial_with_kubernetes_stream, here)
        assert (stream.is_open(), behind.dialled) == (True, 1)
        await asyncio.to_thread(stream.close)


async def test_a_stream_through_kube_apiserver(here: Environment) -> None:
    grant(here, "reader", "get", "list", "watch")
    grant(here, "editor", "get", "create")
    async with aggregated(here, WidgetStrategy()) as (behind, session, ours):
        code, status = await refusal(session, "reader")
        assert (code, status["message"]) == (
            403,
            'widgets.example.test "w1" is forbidden: User "reader" cannot create resource "widgets/tap" in API group "example.test" '
            f'in the namespace "{NAMESPACE}"',
        )
        # The aggregator forwards Origin and replaces Host: pages of other hosts and of kube-apiserver's own address must be refused.
        for origin in (EVIL, "null", here.kubernetes_url, f"http://{HOST}:8001"):
            code, status = await refusal(session, "editor", Origin=origin, **BROWSER)
            assert (code, "--cors-allowed-origins" in status["message"]) == (403, True), origin
        assert behind.dialled == 0
        dialled = ours.replace(HOST, "localhost")  # the Service's name: this Host reaches us
        pages: tuple[tuple[str, str | None], ...] = ((TAP, NAMED), (TAP, dialled), (TAP, None), (ours + TAP, ours))
        for url, page in pages:
            async with session.ws_connect(url, headers={"Impersonate-User": "editor", **BROWSER}, origin=page) as socket:
                await socket.send_bytes(b"x")
                assert await socket.receive_bytes() == b"x"
        async with session.ws_connect(TAP, headers={"Impersonate-User": "editor"}) as socket:
            await socket.send_bytes(b"x")
            assert await socket.receive_bytes() == b"x"
            code, _ = await asyncio.to_thread(here.call, "DELETE", f"{BINDINGS}/editor")
            assert code == 200
            withdrawn = time.monotonic()
            async with asyncio.timeout(60):
                message = await socket.receive()
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1008)
        assert message.extra == "your permission to get widgets/tap was revoked"
        print(f"ended {time.monotonic() - withdrawn:.1f} s after the right was withdrawn")
