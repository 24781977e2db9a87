"""Streams (SUB-07): what goes through them arrives whole and at once, both ways, and they are counted while they last."""

from __future__ import annotations

import asyncio
import hashlib
import random
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

from apiserver.registry.generic.strategy import Destination
from certs.issuing import Profile
from tests.component.apiserver.conftest import Api, Pki
from tests.component.apiserver.test_server import echo
from tests.component.apiserver.widgets import widget

MESSAGE = 32 << 10
MESSAGES = 512


@asynccontextmanager
async def tapped(pki: Pki, api: Api) -> AsyncIterator[str]:
    """An echo behind the stream of a widget; yields the stream's address."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki.authority_file))
    context.load_cert_chain(*pki.issued("handler", Profile("handler", dns_names=("handler",), server=True)))
    server = web.Server(echo)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    await api.make(widget())
    api.strategy.tap.destination = Destination(f"https://127.0.0.1:{port}/x", "handler", pki.client("virt-api"))
    yield f"{api.url}{api.path}/w1/tap"
    listening.close()
    await server.shutdown(1)


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


async def test_sub_07_a_keystroke_is_passed_on_at_once_and_the_stream_is_counted_as_long_as_it_lasts(pki: Pki, api: Api) -> None:
    async with tapped(pki, api) as url:
        async with api.session.ws_connect(url) as socket:
            assert await open_streams(api) == 1
            async with asyncio.timeout(1):
                for _ in range(20):
                    await socket.send_bytes(b"x")
                    assert await socket.receive_bytes() == b"x"
            await socket.send_bytes(b"bye")
            assert (await socket.receive()).type == aiohttp.WSMsgType.CLOSE
        async with asyncio.timeout(5):
            while await open_streams(api):
                await asyncio.sleep(0.02)
