from __future__ import annotations

import asyncio

import pytest

from apiserver.client.answers import MAX_HEAD_BYTES
from apiserver.client.connections import Connections, Origin
from apiserver.client.exchange import BUFFER_BYTES, MAX_CHUNKS
from apiserver.client.transport import Disconnected, NotHTTP, TooLong
from tests.component.client.peers import OK, Peer, answering, ask, closed, gone_at_once, send, silent, world


async def test_status_fields_and_body_are_what_was_said() -> None:
    said = b"HTTP/1.1 418 I am a teapot\r\nRetry-After: 7\r\nX: \xc3\xa4\r\nContent-Length: 0\r\n\r\n"
    async with world(answering(said)) as (_, origin, connections):
        with await send(connections, origin) as response:
            assert (response.status, response.reason) == (418, "I am a teapot")
            assert (response.headers["retry-after"], response.headers["x"]) == ("7", "ä")
            assert await response.read(0) == b""


async def test_target_is_quoted_and_invalid_headers_refused() -> None:
    async with world(answering(OK)) as (server, origin, connections):
        with await connections.send(origin, "GET", "/a b/ü?c=%20d", headers={}):
            pass
        assert server.peers[0].requests[0].startswith(b"GET /a%20b/%C3%BC?c=%20d HTTP/1.1\r\n")
        for name, value in {"Authorization": "Bearer a\r\nb: c", "a: b": "c", "": "c", "X": "\x7f", "Y": "ä"}.items():
            with pytest.raises(NotHTTP, match="cannot be sent"):
                await connections.send(origin, "GET", "/", headers={name: value})


@pytest.mark.parametrize(
    ("method", "answer", "expected"),
    [
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n", b"abcde"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"ok"),
    ],
    ids=["chunked", "head", "no content", "not modified", "informational"],
)
async def test_every_form_of_an_answer_ends_where_it_ends(method: str, answer: bytes, expected: bytes) -> None:
    async def act(peer: Peer) -> None:
        await peer.hear()
        await peer.say(answer)
        for each in answer:
            await peer.hear() if each == answer[0] and not len(peer.requests) > 1 else None
            await peer.say(bytes((each,)))
            await asyncio.sleep(0)
        await answering(OK)(peer)

    async with world(act) as (server, origin, connections):
        assert await ask(connections, origin, method) == expected
        assert await ask(connections, origin, method) == expected
        assert await ask(connections, origin) == b"ok"
        assert len(server.peers) == 1


async def test_a_body_until_the_end_of_the_connection() -> None:
    async with world(answering(b"HTTP/1.1 200 OK\r\n\r\nall of it", then=gone_at_once)) as (server, origin, connections):
        assert await ask(connections, origin) == b"all of it"
        assert await ask(connections, origin) == b"all of it"
        assert len(server.peers) == 2


@pytest.mark.parametrize(
    "begun",
    [
        b"HTTP/1.1 200 O",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
    ],
    ids=["head", "length", "chunks"],
)
async def test_truncated_response_is_an_error_and_not_repeated(begun: bytes) -> None:
    async with world(answering(OK, begun, then=gone_at_once)) as (server, origin, connections):
        await ask(connections, origin)
        pieces: list[bytes] = []
        with pytest.raises(Disconnected) as broken:
            await read(connections, origin, pieces)
        assert (broken.value.is_answered, len(server.peers)) == (True, 1)
        assert b"".join(pieces) == (b"part" if b"part" in begun else b"")


async def read(connections: Connections, origin: Origin, pieces: list[bytes]) -> None:
    with await send(connections, origin) as response:
        async for piece in response:
            pieces.append(piece)  # noqa: PERF401 - what came before an error counts


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (MAX_HEAD_BYTES + 1),
    ],
    ids=["not http", "status", "length", "two lengths", "chunk", "switch", "long head"],
)
async def test_garbage_is_an_error(said: bytes) -> None:
    async with world(answering(said, then=silent)) as (_, origin, connections):
        with pytest.raises(NotHTTP):
            await ask(connections, origin)
        await closed(connections)


async def test_a_long_head_is_read() -> None:
    said = b"HTTP/1.1 200 OK\r\nX: " + b"x" * (MAX_HEAD_BYTES // 2) + b"\r\nContent-Length: 2\r\n\r\nok"
    async with world(answering(said)) as (_, origin, connections):
        assert await ask(connections, origin) == b"ok"


async def test_a_body_that_is_too_long_is_not_read_to_its_end() -> None:
    async with world(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 4096, then=silent)) as (
        _,
        origin,
        connections,
    ):
        with pytest.raises(TooLong, match="longer than 1000 bytes"), await send(connections, origin) as response:
            await response.read(1000)
        await closed(connections)


async def test_a_reader_that_does_not_read_stops_the_server() -> None:
    sent = 0

    async def act(peer: Peer) -> None:
        nonlocal sent
        await peer.hear()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
        for _ in range(64 << 4):
            await peer.say(bytes(1 << 16))
            sent += 1 << 16

    async with world(act) as (_, origin, connections):
        with await send(connections, origin, idle_seconds=1) as response:
            await asyncio.sleep(1.2)  # beyond the silence limit: here the client does not read
            (connection,) = connections._open
            assert connection._size < 4 * BUFFER_BYTES
            assert sent < 32 << 20
            assert sum([len(piece) async for piece in response]) == 64 << 20


async def test_tiny_chunks_yield_to_other_tasks() -> None:
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n"
    async with world(answering(said)) as (_, origin, connections), asyncio.TaskGroup() as tasks:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        with await send(connections, origin) as response:
            await asyncio.sleep(0.05)
            counting = tasks.create_task(other())
            assert len(await response.read(20_000)) == 20_000
            assert turns >= 20_000 // MAX_CHUNKS - 1
            counting.cancel()


async def test_a_server_that_does_not_read_stops_the_sender() -> None:
    read = asyncio.Event()

    async def act(peer: Peer) -> None:
        await read.wait()
        assert len(await peer.hear()) == 32 << 20
        await peer.say(OK)

    async with world(act) as (_, origin, connections), asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(ask(connections, origin, "POST", bytes(32 << 20)))
        await asyncio.sleep(0.1)
        (connection,) = connections._open
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() < 1 << 20
        read.set()
        assert await asked == b"ok"


async def test_an_early_answer_is_the_answer() -> None:
    async def act(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.say(b"HTTP/1.1 100 Continue\r\n\r\n")
        await asyncio.sleep(0.02)
        await peer.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await asyncio.sleep(10)

    async with world(act, answering(OK)) as (_, origin, connections):
        with await send(connections, origin, "POST", bytes(32 << 20)) as response:
            assert (response.status, await response.read(9)) == (413, b"no")
        await closed(connections)  # the rest would be parsed as the next response
        assert await ask(connections, origin) == b"ok"


async def test_a_server_that_is_silent_is_given_up() -> None:
    async with world(answering(OK, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok", then=silent), silent) as (_, origin, connections):
        await ask(connections, origin, total_seconds=1)
        await asyncio.sleep(1.1)  # past a finished exchange's deadline
        with await send(connections, origin, idle_seconds=0.5) as response:
            assert await anext(response) == b"ok"
            with pytest.raises(TimeoutError, match=r"nothing came for 0\.5 s"):
                await anext(response)
        with pytest.raises(TimeoutError, match="timed out waiting for the response"):
            await ask(connections, origin, total_seconds=0.05)
        await closed(connections)


async def test_a_server_that_does_not_answer_in_time_is_given_up() -> None:
    async with world(silent) as (_, origin, connections):
        with pytest.raises(TimeoutError):
            await ask(connections, origin, answer_seconds=0.1)
        await closed(connections)


async def test_silent_exchanges_of_a_path_can_be_given_up() -> None:
    begun = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", then=silent)
    async with world(begun) as (_, origin, connections):
        with await send(connections, origin) as response:
            await anext(response)
            for path, seconds in (("/y", 0.0), ("/x", 60.0)):
                connections.give_up(path, seconds)
            assert len(connections._open) == 1
            connections.give_up("/x", 0.0)
            with pytest.raises(TimeoutError, match="given up"):
                await anext(response)
        await closed(connections)


async def test_pieces_that_keep_coming_are_no_silence() -> None:
    async def act(peer: Peer) -> None:
        await peer.hear()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.2)
            await peer.say(b"x")

    async with world(act) as (_, origin, connections):
        assert await ask(connections, origin, idle_seconds=1.5) == b"x" * 10
