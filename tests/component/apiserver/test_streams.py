from __future__ import annotations

import asyncio
import hashlib
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from apiserver.apis.meta import errors
from apiserver.endpoints.verbs import joining
from apiserver.registry.generic.strategy import Destination
from certs.issuing import Profile
from tests.component.apiserver.conftest import Api, Pki
from tests.component.apiserver.test_server import echo
from tests.component.apiserver.widgets import widget
from tests.own_time import within

MESSAGE = 32 << 10
MESSAGES = 512


Serve = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def tapped(pki: Pki, api: Api, serve: Serve = echo) -> AsyncIterator[str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki.authority_file))
    context.load_cert_chain(*pki.issued("handler", Profile("handler", dns_names=("handler",), server=True)))
    server = web.Server(serve)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    await api.make(widget())
    api.strategy.tap.destination = Destination(f"https://127.0.0.1:{port}/x", "handler", pki.client("virt-api"))
    yield f"{api.url}{api.path}/w1/tap"
    listening.close()
    await server.shutdown(0.05)


async def open_streams(api: Api) -> float:
    lines = (await api.get("/metrics")).body.decode().splitlines()
    found = [each for each in lines if each.startswith("apiserver_longrunning_requests{") and 'verb="CONNECT"' in each]
    return sum(float(each.rpartition(" ")[2]) for each in found)


async def test_sub_07_megabytes_come_back_whole_while_both_sides_speak(pki: Pki, api: Api) -> None:
    async with tapped(pki, api) as url, api.session.ws_connect(url, max_msg_size=0) as socket:
        pieces = [random.Random(number).randbytes(MESSAGE) for number in range(4)]
        sent, back = hashlib.sha256(), hashlib.sha256()

        async def speak() -> None:
            for number in range(MESSAGES):
                piece = pieces[number % len(pieces)]
                sent.update(piece)
                await socket.send_bytes(piece)

        async def listen() -> None:
            for _ in range(MESSAGES):
                back.update(await socket.receive_bytes())

        began = time.monotonic()
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(speak())
            tasks.create_task(listen())
        rate = MESSAGE * MESSAGES / (time.monotonic() - began) / 1e6
        assert back.digest() == sent.digest()
        assert rate > 1, f"{rate:.1f} MB/s"


async def test_sub_07_keystroke_passes_at_once_and_stream_is_counted(pki: Pki, api: Api) -> None:
    async with tapped(pki, api) as url:
        async with api.session.ws_connect(url) as socket:
            assert await open_streams(api) == 1

            async def type_on() -> None:
                for _ in range(20):
                    await socket.send_bytes(b"x")
                    assert await socket.receive_bytes() == b"x"

            await within(1, type_on())
            await socket.send_bytes(b"bye")
            assert (await socket.receive()).type == aiohttp.WSMsgType.CLOSE
        async with asyncio.timeout(30):
            while await open_streams(api):
                await asyncio.sleep(0.02)


async def test_warning_is_in_the_answer_to_the_upgrade(pki: Pki, api: Api) -> None:
    async with tapped(pki, api) as url:
        async with api.session.ws_connect(url) as socket:
            assert "Warning" not in socket._response.headers
        api.strategy.tap.told = ('the widget "w1" stands still', "one\nline")
        async with api.session.ws_connect(url) as socket:
            assert socket._response.headers.getall("Warning") == ['299 - "the widget \\"w1\\" stands still"', '299 - "one?line"']
            await socket.send_bytes(b"x")
            assert await socket.receive_bytes() == b"x"


async def test_text_stays_text_and_a_broken_server_is_told(pki: Pki, api: Api) -> None:
    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str((await socket.receive_str()).upper())
        assert request.transport is not None
        request.transport.abort()
        return socket

    async with tapped(pki, api, serve) as url, api.session.ws_connect(url) as socket, asyncio.timeout(30):
        await socket.send_str("grüße")
        assert await socket.receive_str() == "GRÜSSE"
        closed = await socket.receive()
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1001)
        assert str(closed.extra).startswith("the connection broke")


@pytest.mark.parametrize("code", [1001, 1011])
@pytest.mark.parametrize("case", ["alive", "off", "deleted", "recreated"])
async def test_1001_of_an_object_that_is_over_becomes_1000(pki: Pki, api: Api, case: str, code: int) -> None:
    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if case == "off":
            api.strategy.tap.end = "it is off"
        if case in ("deleted", "recreated"):
            await api.call("DELETE", "w1")
        if case == "recreated":
            await api.make(widget())
        await socket.close(code=code, message=b"it moved")
        return socket

    expected = {"alive": (1001, "it moved"), "off": (1000, "it is off"), "deleted": (1000, "it was deleted")}
    async with tapped(pki, api, serve) as url, api.session.ws_connect(url) as socket, asyncio.timeout(30):
        closed = await socket.receive()
        assert (closed.data, closed.extra) == (expected.get(case, expected["deleted"]) if code == 1001 else (1011, "it moved"))


async def test_close_reason_of_a_stream_server_is_sanitized(pki: Pki, api: Api) -> None:
    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.close(code=1011, message="\x1b]52;c;cm0gLXJmIH4K\x07\x9b2J no\nstream".encode())
        return socket

    async with tapped(pki, api, serve) as url, api.session.ws_connect(url) as socket, asyncio.timeout(30):
        closed = await socket.receive()
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1011)
        assert closed.extra == "]52;c;cm0gLXJmIH4K2J no | stream"


async def test_a_message_that_is_too_long_ends_the_stream(pki: Pki, api: Api) -> None:
    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_bytes(bytes(joining.MAX_MESSAGE_BYTES + 1))
        await socket.receive()
        return socket

    async with tapped(pki, api, serve) as url, api.session.ws_connect(url) as socket, asyncio.timeout(30):
        closed = await socket.receive()
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1001)


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        (409, '{"kind": "Status", "reason": "Conflict", "code": 409, "message": "busy"}', 409),
        (503, '{"kind": "Status", "code": "x", "reason": [], "message": 7, "details": [1], "metadata": "x"}', 503),
        (503, '{"kind": "Status", "details": {"causes": 7, "retryAfterSeconds": 1e30, "name": {}}}', 503),
        (404, '{"kind": "Status", "details": {"causes": ["x"]}}', 404),
        (418, '{"kind": "Status", "reason": "Teapot"}', 503),
        (200, "hello", 503),
        (302, "", 503),
        (599, "\x1b[2J", 503),
    ],
)
async def test_any_refusal_by_a_stream_server_is_passed_on_safely(pki: Pki, api: Api, code: int, body: str, expected: int) -> None:
    async def serve(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=code, text=body, headers={"Location": "https://elsewhere"})

    async with tapped(pki, api, serve) as url:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await api.session.ws_connect(url)
    assert refused.value.status == expected


async def test_dial_error_of_a_stream_server_is_printable(pki: Pki, api: Api) -> None:
    async def serve(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=101, headers={"Connection": "Upgrade", "Upgrade": "\x9b2J"})

    async with tapped(pki, api, serve):
        destination = api.strategy.tap.destination
        assert destination is not None
        with pytest.raises(errors.ServiceUnavailable, match="cannot be reached: invalid Upgrade header") as refused:
            async with joining.dialled(destination, api.strategy.tap):
                pass
    assert refused.value.message.isprintable()


async def test_a_client_that_does_not_read_stops_the_server(pki: Pki, api: Api) -> None:
    sent = 0

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for _ in range(1024):
            await socket.send_bytes(bytes(64 << 10))
            sent += 64 << 10
        return socket

    async with tapped(pki, api, serve) as url, api.session.ws_connect(url, max_msg_size=0) as socket, asyncio.timeout(20):
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert 0 < sent < 48 << 20
        for _ in range(1024):
            await socket.receive_bytes()


async def test_a_redirect_is_not_followed(pki: Pki, api: Api) -> None:
    asked: list[str] = []

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(status=302, headers={"Location": "/elsewhere"}, text="over there")

    async with tapped(pki, api, serve) as url:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await api.session.ws_connect(url)
    assert asked == ["/x"]
