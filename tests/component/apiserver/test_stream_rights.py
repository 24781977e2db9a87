from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import websocket
from aiohttp import web

from apiserver.server import options, running
from apiserver.server.options import Times
from apiserver.server.running import Kinds
from certs.issuing import Pair, new_authority
from storage.memory import MemoryStorage
from tests.component.apiserver.conftest import HOUR, Api, Pki
from tests.component.apiserver.test_delegation import CONFIG_MAPS, NAMESPACES, REVIEWS, TOKENS, trusted, write_kubeconfig
from tests.component.apiserver.test_streams import tapped
from tests.component.apiserver.widgets import WIDGETS, Tap, WidgetStrategy
from tests.fakes.kubeapi import FakeAPI

TAP = f"{WIDGETS.path('acc')}/w1/tap"
EVIL = "https://evil.example"
BROWSER = {"Sec-Fetch-Site": "cross-site", "User-Agent": "Mozilla/5.0 (X11; Linux x86_64)", "Accept-Language": "en"}
OWNER = "owner"


@dataclass
class Rights:
    granted: dict[str, set[str]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    def admit(self, path: str, obj: dict[str, Any]) -> None:
        if path == REVIEWS:
            user, about = obj["spec"]["user"], obj["spec"].get("resourceAttributes", {})
            allowed = user == OWNER or about.get("verb") in self.granted.get(user, ())
            obj["status"] = {"allowed": allowed}
        if path == TOKENS:
            user = self.tokens.get(obj["spec"]["token"])
            obj["status"] = {"authenticated": user is not None, "user": {"username": user}}


@dataclass
class Scene:
    rights: Rights
    kube: FakeAPI
    pki: Pki
    proxies: Pair
    api: Api
    dialled: int = 0
    typed: bytes = b""

    async def echo(self, request: web.BaseRequest) -> web.StreamResponse:
        self.dialled += 1
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            self.typed += message.data
            await socket.send_bytes(message.data)
        return socket

    @asynccontextmanager
    async def proxied(self) -> AsyncIterator[aiohttp.ClientSession]:
        connector = aiohttp.TCPConnector(ssl=self.pki.client("front-proxy-client", self.proxies))
        async with aiohttp.ClientSession(self.api.url, connector=connector) as session:
            yield session

    async def refusal(self, path: str = TAP, **headers: str) -> tuple[int, Any]:
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        upgrade = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw==",
        }
        async with self.proxied() as session, session.get(path, headers={**upgrade, **given}) as answer:
            return answer.status, json.loads(await answer.read()) if answer.status != 101 else {"reason": "", "message": "it was opened"}


@asynccontextmanager
async def scene_of(pki: Pki, directory: Path, *flags: str, times: Times | None = None, tap: Tap | None = None) -> AsyncIterator[Scene]:
    kube, rights, strategy, storage = FakeAPI(), Rights(), WidgetStrategy(tap), MemoryStorage()
    kube.admit = rights.admit
    proxies = new_authority("front-proxy", HOUR, datetime.now(UTC))
    await kube.put(CONFIG_MAPS, trusted(proxies, pki.authority, ["front-proxy-client"]))
    await kube.put(NAMESPACES, {"metadata": {"name": "acc"}, "status": {"phase": "Active"}})
    async with kube.serving() as config:
        given = options.parse(
            [
                "--bind-address=127.0.0.1", "--secure-port=0", "--storage=memory", "--shutdown-delay-duration=0s",
                f"--tls-cert-file={pki.directory / 'server.crt'}", f"--tls-private-key-file={pki.directory / 'server.key'}",
                f"--kubeconfig={write_kubeconfig(directory / 'kubeconfig', config)}",
                "--authentication-token-webhook-cache-ttl=0s",
                # Cached reviews must not count for streams.
                "--authorization-webhook-cache-authorized-ttl=1h",
                *flags,
            ]
        )  # fmt: skip
        given = replace(given, times=times or Times())
        async with running.running(given, lambda _: Kinds((strategy,)), storage) as (host, port):
            connector = aiohttp.TCPConnector(ssl=pki.client(OWNER))
            async with aiohttp.ClientSession(connector=connector) as session:
                api = Api(f"https://{host}:{port}", session, strategy, storage)
                async with asyncio.timeout(10):
                    while (await api.get("/readyz")).code != 200:
                        await asyncio.sleep(0.02)
                scene = Scene(rights, kube, pki, proxies, api)
                async with tapped(pki, api, scene.echo):
                    yield scene


QUICK = Times(stream_check=(0.05, 0.1), stream_shared=0.05)


class Picture(Tap):
    interactive = False


@pytest.fixture
async def scene(pki: Pki, tmp_path: Path, tap: Tap) -> AsyncIterator[Scene]:
    async with scene_of(pki, tmp_path, times=QUICK, tap=tap) as made:
        yield made


@pytest.fixture
def tap() -> Tap:
    return Tap()


async def spoken(socket: aiohttp.ClientWebSocketResponse) -> None:
    await socket.send_bytes(b"x")
    assert await socket.receive_bytes() == b"x"


async def closed(socket: aiohttp.ClientWebSocketResponse) -> tuple[Any, Any]:
    async with asyncio.timeout(20):  # less than half a minute, a regular review's time
        message = await socket.receive()
    assert message.type is aiohttp.WSMsgType.CLOSE, message
    return message.data, message.extra


async def test_read_only_users_get_no_stream_and_cause_no_dial(scene: Scene) -> None:
    scene.rights.granted = {"reader": {"get", "list", "watch"}, "writer": {"create"}, "editor": {"get", "create"}}

    code, status = await scene.refusal(X_Remote_User="reader")
    assert (code, status["reason"], status["message"]) == (
        403,
        "Forbidden",
        'widgets.example.test "w1" is forbidden: User "reader" cannot create resource "widgets/tap" in API group "example.test" '
        'in the namespace "acc"',
    )
    code, status = await scene.refusal(X_Remote_User="writer")
    assert (code, 'cannot get resource "widgets/tap"' in status["message"]) == (403, True)
    code, status = await scene.refusal(f"{WIDGETS.path('acc')}/nope/tap", X_Remote_User="reader")
    assert code == 403  # not 404: unauthorized clients do not learn what exists
    assert scene.dialled == 0
    counted = [each for each in (await scene.api.get("/metrics")).body.decode().splitlines() if each.startswith("apiserver_request_total")]
    assert [each for each in counted if 'code="403"' in each and 'verb="CONNECT"' in each and 'subresource="tap"' in each]

    async with scene.proxied() as session, session.ws_connect(TAP, headers={"X-Remote-User": "editor"}) as socket:
        await spoken(socket)
    assert scene.dialled == 1


@pytest.mark.parametrize("tap", [Picture()])
async def test_a_stream_that_only_shows_needs_no_more_than_get(scene: Scene) -> None:
    scene.rights.granted = {"reader": {"get"}}
    async with scene.proxied() as session, session.ws_connect(TAP, headers={"X-Remote-User": "reader"}) as socket:
        await spoken(socket)
        await asyncio.sleep(0.3)
        await spoken(socket)
        scene.rights.granted.clear()
        assert await closed(socket) == (1008, "your permission to get widgets/tap was revoked")


@pytest.mark.parametrize("left", [{"get"}, {"create"}, set()])
async def test_a_stream_ends_when_a_right_to_it_is_withdrawn(scene: Scene, left: set[str]) -> None:
    scene.rights.granted = {"alice": {"get", "create"}, "bob": {"get", "create"}}
    async with (
        scene.proxied() as session,
        session.ws_connect(TAP, headers={"X-Remote-User": "alice"}) as alice,
        session.ws_connect(TAP, headers={"X-Remote-User": "bob"}) as bob,
    ):
        await asyncio.sleep(0.3)
        await spoken(alice)
        scene.rights.granted["alice"] = left
        code, reason = await closed(alice)
        # If both are withdrawn between the reviews, the message names the second.
        gone = {"get", "create"} - left
        assert (code, reason) in {(1008, f"your permission to {verb} widgets/tap was revoked") for verb in gone}
        await spoken(bob)
        before = scene.typed
        await asyncio.sleep(0.1)
        assert scene.typed == before


async def test_a_client_that_does_not_answer_its_end_types_no_more(scene: Scene) -> None:
    scene.rights.granted = {"alice": {"get", "create"}}
    async with scene.proxied() as session, session.ws_connect(TAP, headers={"X-Remote-User": "alice"}, autoclose=False) as socket:
        await spoken(socket)
        scene.rights.granted.clear()
        assert (await closed(socket))[0] == 1008
        for _ in range(5):
            await socket._writer.send_frame(b"rm -rf /\n", aiohttp.WSMsgType.BINARY)
            await asyncio.sleep(0.02)
    assert scene.typed == b"x"


async def test_a_stream_goes_on_while_kube_apiserver_is_away(scene: Scene) -> None:
    scene.rights.granted = {"alice": {"get", "create"}}
    async with scene.proxied() as session, session.ws_connect(TAP, headers={"X-Remote-User": "alice"}) as socket:
        await spoken(socket)
        scene.kube.authorize = lambda *_: False
        while not scene.kube.forbidden:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        await spoken(socket)
        scene.kube.authorize = None
        scene.rights.granted.clear()
        assert (await closed(socket))[0] == 1008


async def test_a_token_that_was_revoked_ends_its_stream(scene: Scene) -> None:
    scene.rights.tokens = {"secret": "alice"}
    scene.rights.granted = {"alice": {"get", "create"}}
    connector = aiohttp.TCPConnector(ssl=scene.pki.client())
    async with (
        aiohttp.ClientSession(scene.api.url, connector=connector) as session,
        session.ws_connect(TAP, headers={"Authorization": "Bearer secret"}) as socket,
    ):
        await asyncio.sleep(0.3)
        await spoken(socket)
        scene.rights.tokens.clear()
        assert await closed(socket) == (3000, "your credential is no longer valid")


async def test_untrusted_front_proxy_loses_its_streams(scene: Scene) -> None:
    scene.rights.granted = {"alice": {"get", "create"}}
    async with scene.proxied() as session, session.ws_connect(TAP, headers={"X-Remote-User": "alice"}) as socket:
        await spoken(socket)
        await scene.kube.put(CONFIG_MAPS, trusted(scene.proxies, scene.pki.authority, ["another"]))
        assert (await closed(socket))[0] == 3000


async def test_a_stream_that_a_page_of_another_host_opens_is_refused(scene: Scene) -> None:
    scene.rights.granted = {"alice": {"get", "create", "list"}}
    own = scene.api.url
    for origin in (EVIL, "null", own.replace("https", "http"), f"{own}.evil.example", ""):
        for name, value in BROWSER.items():
            code, status = await scene.refusal(X_Remote_User="alice", Origin=origin, **{name: value})
            assert (code, status["reason"]) == (403, "Forbidden"), (origin, name)
            assert "--cors-allowed-origins" in status["message"]
            assert f'"{origin}"' in status["message"]
    assert scene.dialled == 0
    browser = {"X-Remote-User": "alice", **BROWSER}
    async with scene.proxied() as session:
        async with session.ws_connect(TAP, headers=browser, origin=own) as socket:
            await spoken(socket)
        async with session.get(TAP.removesuffix("/w1/tap"), headers={**browser, "Origin": EVIL}) as answer:
            assert answer.status == 200  # not a websocket: the browser hides the answer
            assert not [each for each in answer.headers if each.lower().startswith("access-control")]


async def test_websocket_watch_is_never_refused_for_its_origin(scene: Scene) -> None:
    scene.rights.granted = {"alice": {"watch", "list"}}
    watch = f"{WIDGETS.path('acc')}?watch=1"
    async with scene.proxied() as session:
        for origin in (EVIL, "null", None):
            for further in ({}, BROWSER):
                async with session.ws_connect(watch, headers={"X-Remote-User": "alice", **further}, origin=origin) as socket:
                    assert json.loads((await socket.receive()).data)["object"]["metadata"]["name"] == "w1"


async def test_programs_that_say_an_origin_open_streams_and_watches(scene: Scene) -> None:
    """websocket-client, which kubernetes.stream uses, sends an Origin unlike the ``Host`` that the aggregator changes; so does fabric8."""
    scene.rights.granted = {"alice": {"get", "create", "watch", "list"}}
    scene.rights.tokens = {"secret": "alice"}
    dial = partial(websocket.create_connection, host="virt-api.kubevirt.svc", sslopt={"context": scene.pki.client()}, timeout=10)
    for further in ([], ["User-Agent: fabric8-kubernetes-client/6.13.4", "Accept-Encoding: gzip"]):
        header = ["Authorization: Bearer secret", *further]
        address = scene.api.url.replace("https", "wss")
        socket = await asyncio.to_thread(dial, address + TAP, header=header, origin=scene.api.url)
        await asyncio.to_thread(socket.send_binary, b"x")
        assert await asyncio.to_thread(socket.recv) == b"x"
        await asyncio.to_thread(socket.close)
        watch = await asyncio.to_thread(dial, f"{address}{WIDGETS.path('acc')}?watch=1", header=header)
        assert json.loads(await asyncio.to_thread(watch.recv))["object"]["metadata"]["name"] == "w1"
        await asyncio.to_thread(watch.close)


async def test_a_page_that_the_operator_allows_opens_websockets(pki: Pki, tmp_path: Path) -> None:
    async with (
        scene_of(pki, tmp_path, r"--cors-allowed-origins=^https://console\.example$,//a\.example(:|$)", times=QUICK) as scene,
        scene.proxied() as session,
    ):
        scene.rights.granted = {"alice": {"get", "create"}}
        for origin in ("https://console.example", "https://a.example:8080"):
            async with session.ws_connect(TAP, headers={"X-Remote-User": "alice", **BROWSER}, origin=origin) as socket:
                await spoken(socket)
        for origin in (EVIL, "https://console.example.evil.example", "null"):
            assert (await scene.refusal(X_Remote_User="alice", Origin=origin, **BROWSER))[0] == 403
