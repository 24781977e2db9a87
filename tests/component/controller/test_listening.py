from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from certs import issuing
from certs.issuing import Profile
from controller.serving import listening
from controller.serving.health import Health

HALF = b"GET /livez HTTP/1.1\r\nHost: a\r\nX: "
MOST = 64


@contextlib.asynccontextmanager
async def health() -> AsyncIterator[int]:
    server = Health(0, {}, host="127.0.0.1")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run())
        async with asyncio.timeout(30):
            while not server.bound_port:
                await asyncio.sleep(0.01)
        yield server.bound_port
        running.cancel()


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.05):
            return await reader.read(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


async def test_open_connections_do_not_block_the_kubelet() -> None:
    async with health() as port, contextlib.AsyncExitStack() as stack:
        readers = []
        for _ in range(MOST + 20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(HALF)
            readers.append(reader)
        await asyncio.sleep(0.1)
        assert sum([await ended(each) for each in readers]) == 20
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/livez") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        assert [await ended(each) for each in readers] == [True] * 21 + [False] * (MOST - 1), "the oldest go"


async def test_excess_connections_of_an_address_close_its_own() -> None:
    async with health() as port, contextlib.AsyncExitStack() as stack:
        readers: dict[str, list[asyncio.StreamReader]] = {}
        for address, count in (("127.0.0.2", 3), ("127.0.0.1", MOST + 20)):
            readers[address] = []
            for _ in range(count):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
                stack.callback(writer.close)
                writer.write(HALF)
                readers[address].append(reader)
        async with asyncio.timeout(10):
            for each in readers["127.0.0.1"][:23]:
                assert await each.read() == b""
        assert [await ended(each) for each in readers["127.0.0.2"]] == [False] * 3


async def test_where_all_are_being_answered_the_newcomer_goes() -> None:
    room, arrived, go_on = listening.Connections(2), asyncio.Queue[None](), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        with room.answering(request):
            arrived.put_nowait(None)
            await go_on.wait()
            return web.Response(text="said")

    app = web.Application()
    app.router.add_get("/", answer)
    async with listening.listening(app, "127.0.0.1", 0, connections=room) as port, aiohttp.ClientSession() as session:

        async def get() -> str:
            async with session.get(f"http://127.0.0.1:{port}/") as found:
                return await found.text()

        async with asyncio.TaskGroup() as tasks, asyncio.timeout(10):
            first = [tasks.create_task(get()) for _ in range(2)]
            for _ in first:
                await arrived.get()
            with pytest.raises(aiohttp.ClientError):
                await get()
            go_on.set()
        assert [each.result() for each in first] == ["said"] * 2
        async with asyncio.timeout(10):
            assert await get() == "said"


def tls(directory: Path) -> ssl.SSLContext:
    now = datetime.now(UTC)
    authority = issuing.new_authority("ca", timedelta(hours=1), now)
    pair = issuing.issue(authority, Profile("localhost", ("localhost",), server=True), timedelta(hours=1), now)
    (directory / "tls.crt").write_bytes(pair.certificate)
    (directory / "tls.key").write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    return context


async def handshaken(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing)
    while True:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
            writer.write(outgoing.read())
            return reader, writer
        writer.write(outgoing.read())
        incoming.write(await reader.read(1 << 16))


async def test_displaced_connection_is_closed_without_a_tls_goodbye(tmp_path: Path) -> None:
    room = listening.Connections(1)
    async with listening.listening(web.Application(), "127.0.0.1", 0, tls(tmp_path), connections=room) as port:
        reader, writer = await handshaken(port)
        await asyncio.sleep(0.1)
        _, newcomer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(10):
            while await reader.read(1 << 16):
                pass
        writer.close()
        newcomer.close()


async def test_a_handshake_that_does_not_end_has_its_time(tmp_path: Path) -> None:
    async with listening.listening(web.Application(), "127.0.0.1", 0, tls(tmp_path), handshake=0.2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01")
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()
