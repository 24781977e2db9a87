from __future__ import annotations

import asyncio
import itertools
import socket
import ssl

import pytest

from apiserver.client.connections import Connections, Origin
from apiserver.client.transport import Disconnected, ExchangeFailed
from tests.component.client.peers import OK, Peer, Server, answering, ask, closed, gone, send, silent, world


async def test_a_connection_is_used_again() -> None:
    async with world(answering(OK)) as (server, origin, connections):
        assert [await ask(connections, origin) for _ in range(3)] == [b"ok"] * 3
        assert await ask(connections, origin, "PUT", b"body") == b"ok"
        (peer,) = server.peers
        assert peer.requests[0] == b"GET /x?y=z HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: test\r\n\r\n" % server.port
        assert b"\r\nContent-Length: 4\r\n" in peer.requests[3]


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (Origin("a.test", 80), "a.test"),
        (Origin("a.test", 443), "a.test:443"),
        (Origin("a.test", 443, ssl.create_default_context()), "a.test"),
        (Origin("::1", 6443, ssl.create_default_context()), "[::1]:6443"),
    ],
)
def test_host_header_omits_the_default_port(origin: Origin, host: str) -> None:
    assert origin.authority == host


async def test_a_goodbye_is_heard() -> None:
    said = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    async with world(answering(said)) as (server, origin, connections):
        assert [await ask(connections, origin) for _ in range(2)] == [b"ok"] * 2
        assert len(server.peers) == 2


async def test_an_idle_connection_is_closed_after_a_while() -> None:
    async with world(answering(OK), keep_seconds=0.05) as (server, origin, connections):
        await ask(connections, origin)
        await closed(connections)
        assert connections._hosts == {}
        await ask(connections, origin)
        assert len(server.peers) == 2


async def test_a_server_that_speaks_unasked_is_not_asked_again() -> None:
    async def act(peer: Peer) -> None:
        await peer.hear()
        await peer.say(OK)
        await asyncio.sleep(0.02)
        await peer.say(OK)
        await silent(peer)

    async with world(act) as (server, origin, connections):
        await ask(connections, origin)
        await closed(connections)
        await ask(connections, origin)
        assert len(server.peers) == 2


async def test_an_answer_with_something_behind_it_is_the_last() -> None:
    async with world(answering(OK + b"HTTP/1.1 200 OK\r\n")) as (server, origin, connections):
        assert [await ask(connections, origin) for _ in range(2)] == [b"ok"] * 2
        assert len(server.peers) == 2


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_closed_idle_connection_is_retried_transparently(method: str) -> None:
    async with world(answering(OK, then=gone)) as (server, origin, connections):
        assert [await ask(connections, origin, method) for _ in range(3)] == [b"ok"] * 3
        assert len(server.peers) == 3


async def test_a_request_that_may_not_be_repeated_is_not() -> None:
    async with world(answering(OK, then=gone)) as (server, origin, connections):
        await ask(connections, origin, "POST", b"x")
        with pytest.raises(Disconnected) as broken:
            await ask(connections, origin, "POST", b"x")
        assert (broken.value.is_answered, len(server.peers)) == (False, 1)


async def test_a_fresh_connection_that_ends_is_an_error() -> None:
    async with world(gone) as (server, origin, connections):
        with pytest.raises(Disconnected, match="the server closed the connection"):
            await ask(connections, origin)
        assert len(server.peers) == 1


async def test_a_reset_says_so() -> None:
    async def act(peer: Peer) -> None:
        await peer.hear()
        raw = peer.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        peer.abort()

    async with world(act) as (_, origin, connections):
        with pytest.raises(Disconnected) as broken:
            await ask(connections, origin)
        assert isinstance(broken.value.cause, ConnectionResetError)


async def test_unread_response_closes_its_connection_unless_complete() -> None:
    more = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok"
    async with world(answering(OK, more, then=silent), answering(OK)) as (server, origin, connections):
        with await send(connections, origin) as response:
            await asyncio.sleep(0.02)
        response.release()
        with await send(connections, origin) as response:
            assert await anext(response) == b"ok"
        assert [piece async for piece in response] == []
        await closed(connections)
        await ask(connections, origin)
        assert [len(peer.requests) for peer in server.peers] == [2, 1]


@pytest.mark.parametrize("limit", [1, 3])
async def test_beyond_the_limit_requests_wait_in_order(limit: int) -> None:
    async with world(answering(OK), limit=limit) as (server, origin, connections):
        order: list[int] = []

        async def one(number: int) -> None:
            with await send(connections, origin):
                order.append(number)
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as tasks:
            for number in range(8):
                tasks.create_task(one(number))
        assert order == list(range(8)) if limit == 1 else sorted(order) == list(range(8))
        assert len(server.peers) == limit


async def test_a_body_that_was_read_gives_its_turn_away_at_once() -> None:
    async with world(answering(OK), limit=1) as (server, origin, connections):
        with await send(connections, origin) as response:
            assert await response.read(9) == b"ok"
            assert await ask(connections, origin) == b"ok"
        assert len(server.peers) == 1


async def test_connection_wait_times_out_and_can_be_cancelled() -> None:
    async with world(answering(OK), limit=1) as (_, origin, connections):
        with await send(connections, origin):
            with pytest.raises(TimeoutError, match=r"timed out connecting to 127\.0\.0\.1"):
                await ask(connections, origin, connect_seconds=0.02)
            with pytest.raises(TimeoutError, match="timed out connecting"):
                await ask(connections, origin, total_seconds=0.02)
            async with asyncio.TaskGroup() as tasks:
                waiting = [tasks.create_task(ask(connections, origin)) for _ in range(3)]
                await asyncio.sleep(0.01)
                for each in waiting:
                    each.cancel()
        assert await ask(connections, origin) == b"ok"
        assert connections._hosts[origin].users == 0


async def test_a_turn_that_comes_with_the_cancellation_is_not_lost() -> None:
    async with world(answering(OK), limit=1) as (_, origin, connections), asyncio.TaskGroup() as tasks:
        with await send(connections, origin):
            waiting = tasks.create_task(ask(connections, origin))
            await asyncio.sleep(0.01)
        waiting.cancel()
        assert await ask(connections, origin) == b"ok"


@pytest.mark.parametrize("turns", range(12))
async def test_a_cancelled_exchange_leaves_nothing_behind(turns: int) -> None:
    async def act(peer: Peer) -> None:
        await peer.hear()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok")
        await silent(peer)

    async with world(act, answering(OK), limit=1) as (server, origin, connections):
        asked = asyncio.get_running_loop().create_task(ask(connections, origin, "PUT", bytes(1 << 20)))
        for _ in range(turns):
            await asyncio.sleep(0.0005 if turns > 6 else 0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await closed(connections)
        assert connections._hosts == {}
        server._act, server._acts = answering(OK), itertools.repeat(answering(OK))
        assert await ask(connections, origin) == b"ok"


async def test_closing_ends_everything() -> None:
    server = Server(answering(OK), silent)
    async with asyncio.timeout(10), server.serving() as origin, asyncio.TaskGroup() as tasks:
        async with Connections(keep_seconds=10, limit=2) as connections:
            with await send(connections, origin):
                pass
            asked = [tasks.create_task(failing(connections, origin)) for _ in range(5)]
            await asyncio.sleep(0.05)
        assert not connections._open
        assert [type(await each) for each in asked] == [Disconnected] * 5
        with pytest.raises(Disconnected):
            await ask(connections, origin)


async def failing(connections: Connections, origin: Origin) -> ExchangeFailed | None:
    try:
        with await send(connections, origin) as response:
            await response.read(9)
            await asyncio.sleep(0.2)
        await ask(connections, origin)
    except ExchangeFailed as error:
        return error
    return None
