from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from apiserver.endpoints.verbs import bounded, joining
from tests.component.apiserver.conftest import Api, Pki, serving
from tests.component.apiserver.test_server import echo
from tests.component.apiserver.test_streams import tapped
from tests.component.apiserver.widgets import Tap, WidgetStrategy, widget

LIMITED = ("--max-streams=4", "--max-streams-per-user=3", "--max-streams-per-user-and-object=2")


@pytest.fixture
async def limited(pki: Pki, strategy: WidgetStrategy) -> AsyncIterator[Api]:
    async with serving(pki, *LIMITED, strategy=strategy) as made:
        yield made


@asynccontextmanager
async def session_of(pki: Pki, user: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=pki.client(user), limit=0)) as session:
        yield session


async def refused(session: aiohttp.ClientSession, url: str) -> str:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    async with session.get(url, headers={**headers, "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "5")
        body = await answer.json()
        assert (body["kind"], body["reason"], body["details"]["retryAfterSeconds"]) == ("Status", "TooManyRequests", 5)
        return str(body["message"])


async def until_open(session: aiohttp.ClientSession, url: str) -> aiohttp.ClientWebSocketResponse:
    async with asyncio.timeout(30):
        while True:
            try:
                return await session.ws_connect(url)
            except aiohttp.WSServerHandshakeError as error:
                if error.status != 429:
                    raise
                await asyncio.sleep(0.02)


async def test_excess_stream_is_refused_before_the_upgrade(pki: Pki, limited: Api) -> None:
    async with tapped(pki, limited) as url, session_of(pki, "alice") as alice, session_of(pki, "bob") as bob, AsyncExitStack() as streams:
        await limited.make(widget("w2"))
        other = url.replace("/w1/", "/w2/")
        for _ in range(2):
            await streams.enter_async_context(alice.ws_connect(url))
        assert await refused(alice, url) == (
            'too many streams: 2 of your streams to tap of widgets "w1" are open on this server, '
            "and 2 is the limit; close one and try again"
        )
        await streams.enter_async_context(alice.ws_connect(other))
        assert "3 of yours are open on this server, and 3 is the limit" in await refused(alice, other)
        first = await streams.enter_async_context(bob.ws_connect(url))
        await first.send_bytes(b"x")
        assert await first.receive_bytes() == b"x"
        assert "4 are open on this server, and 4 is the limit" in await refused(bob, url)


async def test_any_end_of_a_stream_frees_its_place(pki: Pki, limited: Api) -> None:
    async with tapped(pki, limited) as url, session_of(pki, "alice") as alice:
        for _ in range(3):
            one, two = await until_open(alice, url), await until_open(alice, url)
            await one.close()
            await two.send_bytes(b"bye")
            assert (await two.receive()).type == aiohttp.WSMsgType.CLOSE
        one, two = await until_open(alice, url), await until_open(alice, url)
        for each in (one, two):
            transport = each._response.connection.transport if each._response.connection is not None else None
            assert transport is not None
            transport.abort()
        await (await until_open(alice, url)).close()


async def test_a_dial_that_fails_or_is_given_up_holds_no_place(pki: Pki, limited: Api) -> None:
    silent, asked = asyncio.Event(), 0

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if asked <= 4:
            return web.Response(status=500, text="no")
        if asked <= 8:
            await silent.wait()
        return await echo(request)

    async with tapped(pki, limited, serve) as url, session_of(pki, "alice") as alice:
        for _ in range(4):
            with pytest.raises(aiohttp.WSServerHandshakeError) as failed:
                await alice.ws_connect(url)
            assert failed.value.status == 500
        for _ in range(4):
            before = asked
            async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
                opening = tasks.create_task(until_open(alice, url))
                while asked == before:
                    await asyncio.sleep(0.02)
                opening.cancel()
            assert asked == before + 1
        one, two = await until_open(alice, url), await until_open(alice, url)
        await one.close()
        await two.close()
        silent.set()


class Held(Tap):
    holder_header = "X-Whose"


@pytest.mark.parametrize("strategy", [WidgetStrategy(Held())])
async def test_stream_server_identifies_the_holder_by_a_token(pki: Pki, limited: Api) -> None:
    seen: list[str] = []

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers.get("X-Whose", ""))
        return await echo(request)

    async with tapped(pki, limited, serve) as url, session_of(pki, "alice") as alice, session_of(pki, "bob") as bob:
        for session in (alice, alice, bob):
            await (await until_open(session, url)).close()

    assert seen[0] == seen[1] != seen[2]
    assert not {"", "alice", "bob"} & set(seen)


@pytest.mark.parametrize("strategy", [WidgetStrategy(Held())])
async def test_client_cannot_set_the_holder_of_its_stream(pki: Pki, limited: Api) -> None:
    seen: list[list[str]] = []

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers.getall("X-Whose"))
        return await echo(request)

    async with tapped(pki, limited, serve) as url, session_of(pki, "alice") as alice:
        await (await alice.ws_connect(url, headers={"X-Whose": "bob"})).close()
    assert len(seen[0]) == 1
    assert seen[0] != ["bob"]


@pytest.mark.parametrize("message", [b"x" * (64 << 10), b"xy", b""], ids=["long messages", "keys", "empty messages"])
async def test_queue_of_a_stalled_stream_server_is_bounded(pki: Pki, limited: Api, message: bytes) -> None:
    stop, served = asyncio.Event(), list[web.WebSocketResponse]()

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        made = web.WebSocketResponse()
        await made.prepare(request)
        served.append(made)

        await stop.wait()
        return made

    async with tapped(pki, limited, serve) as url, session_of(pki, "alice") as alice, alice.ws_connect(url) as stream:

        async def flood() -> None:
            async with asyncio.timeout(3):
                for _ in range((64 << 20) // max(len(message), 64)):
                    await stream.send_bytes(message)
                    await asyncio.sleep(0)

        with pytest.raises(TimeoutError):
            await flood()
        queue = served[0]._reader
        assert queue is not None
        waiting = sum(len(each.data) + sys.getsizeof(each) for each, _ in queue._buffer)
        assert 0 < waiting <= 2 * joining.WINDOW_BYTES + 1000, "more than two windows, and the objects of their messages"
        stop.set()


async def test_overlong_client_message_closes_the_stream_with_1009(pki: Pki, limited: Api) -> None:
    async with tapped(pki, limited) as url, session_of(pki, "alice") as alice, alice.ws_connect(url) as stream, asyncio.timeout(30):
        await stream.send_bytes(b"x" * joining.MAX_MESSAGE_BYTES)
        assert len(await stream.receive_bytes()) == joining.MAX_MESSAGE_BYTES
        await stream.send_bytes(b"x" * (joining.MAX_MESSAGE_BYTES + 1))
        closed = await stream.receive()
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1009)


async def test_no_compression_is_agreed_on_either_way(pki: Pki, limited: Api) -> None:
    offered: list[str] = []

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        offered.append(request.headers.get("Sec-WebSocket-Extensions", ""))
        return await echo(request)

    async with tapped(pki, limited, serve) as url, session_of(pki, "alice") as alice, alice.ws_connect(url, compress=15) as stream:
        assert stream.compress == 0
    assert offered == [""]


async def test_kernel_buffers_of_a_stream_are_bounded_on_both_sides(pki: Pki, limited: Api) -> None:
    async with tapped(pki, limited) as url, session_of(pki, "alice") as alice:
        before = narrowed()
        async with alice.ws_connect(url):
            assert len(narrowed() - before) == 2


def narrowed() -> set[str]:
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(each.name))) as one:
            name = each.readlink()
            sizes = [one.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_RCVBUF, socket.SO_SNDBUF)]
            if one.family == socket.AF_INET and max(sizes) <= 2 * bounded.SOCKET_BYTES:
                found.add(str(name))
    return found
