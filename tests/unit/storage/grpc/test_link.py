import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from storage.grpc import frames
from storage.grpc.calls import CANCELLED, DEADLINE_EXCEEDED, OK, UNAVAILABLE, RpcError, framed
from storage.grpc.link import Keepalive, Link, connect
from tests.fakes.etcd_tls import Authority
from tests.own_time import within
from tests.unit.storage.grpc.test_session import BLOCK, FINE, HEADERS, block, raw

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SETTINGS = raw(frames.SETTINGS, 0, 0)


async def frame_from(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    length, _, stream = frames.HEADER.unpack(await reader.readexactly(frames.HEADER_BYTES))
    return length & 0xFF, stream, await reader.readexactly(length >> 8)


async def call_from(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    while True:
        kind, stream, payload = await frame_from(reader)
        if kind == frames.DATA:
            return stream, payload[5:]


def answered(stream: int, message: bytes) -> bytes:
    head = raw(frames.HEADERS, frames.END_HEADERS, stream, block(*HEADERS))
    tail = raw(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, block(*FINE))
    return head + raw(frames.DATA, 0, stream, framed(message)) + tail


async def greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(len(frames.PREFACE))
    writer.write(SETTINGS)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await greeted(reader, writer)
    while True:
        writer.write(answered(*await call_from(reader)))


@asynccontextmanager
async def serving(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await script(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def linked(script: Script, keepalive: Keepalive = Keepalive()) -> AsyncIterator[Link]:  # noqa: B008 - it is frozen
    async with serving(script) as port:
        made = await connect("127.0.0.1", port, None, "", keepalive)
        try:
            yield made
        finally:
            made.abort("the test is over")
            await asyncio.sleep(0.01)


def soon(seconds: float = 30.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def failure(made: Link, deadline: float | None = None) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await made.unary(BLOCK, b"x", deadline or soon())
    return caught.value


async def test_calls_are_answered_many_at_once() -> None:
    async with linked(echo) as made, asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(made.unary(BLOCK, str(number).encode(), soon())) for number in range(100)]
        for number, call in enumerate(calls):
            assert await call == str(number).encode()


async def test_a_deadline_is_kept_and_a_silent_connection_is_left() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greeted(reader, writer)
        await asyncio.sleep(60)

    async with linked(silent) as made, asyncio.TaskGroup() as tasks:
        later = tasks.create_task(failure(made, soon(0.6)))
        began = soon(0)
        assert (await within(0.55, failure(made, soon(0.3)))).status == DEADLINE_EXCEEDED
        assert soon(0) - began > 0.25
        assert not made.is_usable
        assert not (await failure(made)).processed
        assert (await later).status == DEADLINE_EXCEEDED


async def test_slow_call_does_not_close_a_live_connection() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greeted(reader, writer)
        while True:
            writer.write(raw(frames.PING, 0, 0, bytes(8)))
            await asyncio.sleep(0.02)

    async with linked(slow) as made:
        assert (await failure(made, soon(0.3))).status == DEADLINE_EXCEEDED
        assert made.is_usable


async def test_cancelled_call_is_reset_and_the_connection_stays_usable() -> None:
    resets: list[int] = []

    async def reluctant(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greeted(reader, writer)
        while True:
            kind, stream, payload = await frame_from(reader)
            if kind == frames.RST_STREAM:
                resets.append(stream)
            elif kind == frames.DATA and payload[5:] != b"never":
                writer.write(answered(stream, payload[5:]))

    async with linked(reluctant) as made:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await made.unary(BLOCK, b"never", soon())
        assert await made.unary(BLOCK, b"again", soon()) == b"again"
        assert resets == [1]


async def test_a_lost_connection_fails_calls_under_way() -> None:
    async def dying(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greeted(reader, writer)
        await call_from(reader)

    async with linked(dying) as made:
        error = await failure(made)
        assert (error.status, error.processed) == (UNAVAILABLE, True)
        assert not made.is_usable


async def test_leaving_server_answers_open_calls_then_closes() -> None:
    closed = asyncio.Event()

    async def leaving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greeted(reader, writer)
        stream, message = await call_from(reader)
        writer.write(raw(frames.GOAWAY, 0, 0, stream.to_bytes(4, "big") + bytes(4)) + answered(stream, message))
        await reader.read()
        closed.set()

    async with linked(leaving) as made:
        assert await made.unary(BLOCK, b"last", soon()) == b"last"
        assert not made.is_usable
        async with asyncio.timeout(30):
            await closed.wait()


async def test_silent_server_is_pinged_during_calls_then_given_up() -> None:
    pings: list[bytes] = []

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greeted(reader, writer)
        while True:
            kind, _, payload = await frame_from(reader)
            if kind == frames.PING:
                pings.append(payload)

    async with linked(deaf, Keepalive(0.1, 0.1)) as made:
        await asyncio.sleep(0.35)
        assert not pings
        assert made.is_usable
        error = await failure(made)
        assert (error.status, len(pings)) == (UNAVAILABLE, 1)
        assert "sent nothing" in str(error)


async def test_a_server_that_answers_pings_is_waited_for() -> None:
    async def patient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greeted(reader, writer)
        pings = 0
        while True:
            kind, _, payload = await frame_from(reader)
            if kind == frames.PING:
                pings += 1
                writer.write(raw(frames.PING, frames.ACK, 0, payload))
            if pings == 4:
                writer.write(answered(1, b"at last"))
                pings += 1

    async with linked(patient, Keepalive(0.05, 0.05)) as made:
        assert await made.unary(BLOCK, b"x", soon()) == b"at last"


async def test_streams_carry_messages_until_cancelled() -> None:
    async def counting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greeted(reader, writer)
        while True:
            kind, stream, payload = await frame_from(reader)
            if kind == frames.HEADERS:
                writer.write(raw(frames.HEADERS, frames.END_HEADERS, stream, block(*HEADERS)))
            elif kind == frames.DATA and payload[5:] == b"end":
                writer.write(raw(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, block(*FINE)))
            elif kind == frames.DATA:
                writer.write(raw(frames.DATA, 0, stream, payload))

    async with linked(counting) as made:
        messages = made.stream(BLOCK)
        for number in range(20):
            messages.send(b"%d" % number)
            assert await messages.read() == b"%d" % number
        messages.send(b"end")
        with pytest.raises(RpcError) as caught:
            await messages.read()
        assert caught.value.status == OK
        other = made.stream(BLOCK)
        other.cancel()
        with pytest.raises(RpcError) as caught:
            await other.read()
        assert caught.value.status == CANCELLED


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b""])
async def test_non_http2_greeting_is_an_error_at_once(greeting: bytes) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()

    async def refused(port: int) -> None:
        with pytest.raises((RpcError, OSError)):
            await connect("127.0.0.1", port, None, "")

    async with serving(other) as port:
        await within(2, refused(port))


async def test_tls_server_without_http2_is_refused(tmp_path: Path) -> None:
    ca, cert, key = Authority().issue(tmp_path, "etcd")
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(cert, key)
    ours = ssl.create_default_context(cafile=str(ca))
    ours.set_alpn_protocols(["h2"])
    async with serving(echo, theirs) as port:
        with pytest.raises(RpcError, match="HTTP/2"):
            await connect("127.0.0.1", port, ours, "etcd.test")
