"""Exchanges on real sockets: what the other side may do at any moment, and what is left behind of a cancelled one."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apiserver.client import dialling
from apiserver.client.connections import Connections, Origin, Response
from apiserver.client.exchange import BUFFER_BYTES, MAX_CHUNKS, MAX_HEAD_BYTES, Timeouts
from apiserver.client.transport import Disconnected, ExchangeFailed, NotHTTP, TooLong, Unreachable
from certs.files import write_file
from certs.issuing import Profile, issue, new_authority

HEADERS = {"User-Agent": "test"}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HOUR = timedelta(hours=1)


class Peer:
    """One connection of a server that does what the test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.requests: list[bytes] = []
        self.is_over = False

    async def hear(self) -> bytes:
        """Read a request; return its body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.requests.append(head)
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        return await self.reader.readexactly(int(fields.get(b"content-length", 0)))

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def abort(self) -> None:
        if not self.is_over:
            self.writer.transport.abort()


Act = Callable[[Peer], Awaitable[None]]


class Server:
    """Gives each connection to the next act; the last act has all that follow."""

    def __init__(self, *acts: Act) -> None:
        self._acts = iter(acts)
        self._act = acts[0]
        self.peers: list[Peer] = []
        self.port = 0
        self.tls: ssl.SSLContext | None = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self.peers.append(peer)
        self._act = next(self._acts, self._act)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._act(peer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            peer.is_over = True

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Origin]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield Origin("127.0.0.1", self.port, self.tls)
        finally:
            await asyncio.sleep(0.02)  # asyncio forgets a connection that it is just accepting
            server.close()
            for each in self.peers:
                each.abort()
            await asyncio.sleep(0.01)


def answering(*answers: bytes, then: Act | None = None) -> Act:
    """Return what gives each request the next answer, the last one again and again unless something follows."""

    async def act(peer: Peer) -> None:
        for answer in answers:
            await peer.hear()
            await peer.say(answer)
        if then is not None:
            await then(peer)
            return
        while True:
            await peer.hear()
            await peer.say(answers[-1])

    return act


async def silent(peer: Peer) -> None:
    """Hear everything, say nothing."""
    while await peer.reader.read(1 << 16):
        pass


async def gone(peer: Peer) -> None:
    """Hear one request and leave."""
    await peer.hear()


@asynccontextmanager
async def world(*acts: Act, limit: int = 0, keep_seconds: float = 10) -> AsyncIterator[tuple[Server, Origin, Connections]]:
    server = Server(*acts)
    async with (
        asyncio.timeout(10),
        server.serving() as origin,
        Connections(keep_seconds=keep_seconds, limit=limit) as connections,
    ):
        yield server, origin, connections


async def send(connections: Connections, origin: Origin, method: str = "GET", body: bytes | None = None, **timeouts: float) -> Response:
    return await connections.send(origin, method, "/x?y=z", headers=HEADERS, body=body, timeouts=Timeouts(**timeouts))


async def ask(connections: Connections, origin: Origin, method: str = "GET", body: bytes | None = None, **timeouts: float) -> bytes:
    with await send(connections, origin, method, body, **timeouts) as response:
        return await response.read(1 << 20)


async def closed(connections: Connections, count: int = 0) -> None:
    """Wait until no more than ``count`` connections are open."""
    while len(connections._open) > count:
        await asyncio.sleep(0.001)


async def test_a_connection_is_used_again() -> None:
    async with world(answering(OK)) as (server, origin, connections):
        assert [await ask(connections, origin) for _ in range(3)] == [b"ok"] * 3
        assert await ask(connections, origin, "PUT", b"body") == b"ok"
        (peer,) = server.peers
        assert peer.requests[0] == b"GET /x?y=z HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: test\r\n\r\n" % server.port
        assert b"\r\nContent-Length: 4\r\n" in peer.requests[3]


async def test_status_fields_and_body_are_what_was_said() -> None:
    said = b"HTTP/1.1 418 I am a teapot\r\nRetry-After: 7\r\nX: \xc3\xa4\r\nContent-Length: 0\r\n\r\n"
    async with world(answering(said)) as (_, origin, connections):
        with await send(connections, origin) as response:
            assert (response.status, response.reason) == (418, "I am a teapot")
            assert (response.headers["retry-after"], response.headers["x"]) == ("7", "ä")
            assert await response.read(0) == b""


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (Origin("a.test", 80), "a.test"),
        (Origin("a.test", 443), "a.test:443"),
        (Origin("a.test", 443, ssl.create_default_context()), "a.test"),
        (Origin("::1", 6443, ssl.create_default_context()), "[::1]:6443"),
    ],
)
def test_who_is_asked(origin: Origin, host: str) -> None:
    assert origin.authority == host


async def test_a_literal_of_ipv6_is_dialled() -> None:
    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Peer(reader, writer).hear()
        writer.write(OK)
        writer.close()

    server = await asyncio.start_server(act, "::1", 0)
    async with server, Connections(keep_seconds=1) as connections:
        assert await ask(connections, Origin("::1", server.sockets[0].getsockname()[1])) == b"ok"


async def test_what_may_not_stand_in_a_target_is_quoted() -> None:
    async with world(answering(OK)) as (server, origin, connections):
        with await connections.send(origin, "GET", "/a b/ü?c=%20d", headers={}):
            pass
        assert server.peers[0].requests[0].startswith(b"GET /a%20b/%C3%BC?c=%20d HTTP/1.1\r\n")
        with pytest.raises(NotHTTP, match="cannot be sent"):
            await connections.send(origin, "GET", "/", headers={"Authorization": "Bearer a\r\nb: c"})


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
        assert await ask(connections, origin, method) == expected  # byte by byte
        assert await ask(connections, origin) == b"ok"
        assert len(server.peers) == 1


async def test_a_body_until_the_end_of_the_connection() -> None:
    async with world(answering(b"HTTP/1.1 200 OK\r\n\r\nall of it", then=gone_at_once)) as (server, origin, connections):
        assert await ask(connections, origin) == b"all of it"
        assert await ask(connections, origin) == b"all of it"
        assert len(server.peers) == 2


async def gone_at_once(peer: Peer) -> None:
    """Leave."""


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
async def test_a_kept_connection_that_ends_with_the_request_on_its_way_costs_nothing(method: str) -> None:
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


@pytest.mark.parametrize(
    "begun",
    [
        b"HTTP/1.1 200 O",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
    ],
    ids=["head", "length", "chunks"],
)
async def test_an_answer_that_ends_in_the_middle_is_an_error_and_not_repeated(begun: bytes) -> None:
    async with world(answering(OK, begun, then=gone_at_once)) as (server, origin, connections):
        await ask(connections, origin)
        pieces: list[bytes] = []
        with pytest.raises(Disconnected) as broken:
            await read(connections, origin, pieces)
        assert (broken.value.is_answered, len(server.peers)) == (True, 1)
        assert b"".join(pieces) == (b"part" if b"part" in begun else b"")  # what came is read before the error


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


async def test_a_response_that_is_left_early_closes_its_connection_and_one_whose_end_is_here_does_not() -> None:
    more = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok"
    async with world(answering(OK, more, then=silent), answering(OK)) as (server, origin, connections):
        with await send(connections, origin) as response:
            await asyncio.sleep(0.02)
        response.release()
        with await send(connections, origin) as response:
            assert await anext(response) == b"ok"
        assert [piece async for piece in response] == []  # not somebody else's
        await closed(connections)
        await ask(connections, origin)
        assert [len(peer.requests) for peer in server.peers] == [2, 1]


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
        with await send(connections, origin, idle_seconds=0.1) as response:
            await asyncio.sleep(0.3)  # longer than a server may be silent: it is us who do not listen
            (connection,) = connections._open
            assert connection._size < 4 * BUFFER_BYTES
            assert sent < 32 << 20
            assert sum([len(piece) async for piece in response]) == 64 << 20


async def test_a_server_that_sends_a_byte_in_a_chunk_leaves_others_their_turns() -> None:
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n"
    async with world(answering(said)) as (_, origin, connections), asyncio.TaskGroup() as tasks:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        with await send(connections, origin) as response:
            await asyncio.sleep(0.05)  # it is all here
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
        await closed(connections)  # the rest of the body would be the next request
        assert await ask(connections, origin) == b"ok"


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


async def test_who_waits_for_a_turn_gives_up_in_time_or_when_cancelled() -> None:
    async with world(answering(OK), limit=1) as (_, origin, connections):
        with await send(connections, origin):
            with pytest.raises(TimeoutError, match=r"no connection to 127\.0\.0\.1"):
                await ask(connections, origin, connect_seconds=0.02)
            with pytest.raises(TimeoutError, match="no connection"):
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
    """After every number of turns of the loop: while it connects, sends, waits for the answer, reads."""

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


async def test_a_server_that_is_silent_is_given_up() -> None:
    async with world(answering(OK, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok", then=silent), silent) as (_, origin, connections):
        await ask(connections, origin, total_seconds=0.05)
        await asyncio.sleep(0.1)  # the deadline of what is over is nobody's
        with await send(connections, origin, idle_seconds=0.05) as response:
            assert await anext(response) == b"ok"
            with pytest.raises(TimeoutError, match=r"nothing came for 0\.05 s"):
                await anext(response)
        with pytest.raises(TimeoutError, match="did not come in time"):
            await ask(connections, origin, total_seconds=0.05)
        await closed(connections)


async def test_pieces_that_keep_coming_are_no_silence() -> None:
    async def act(peer: Peer) -> None:
        await peer.hear()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.05)
            await peer.say(b"x")

    async with world(act) as (_, origin, connections):
        assert await ask(connections, origin, idle_seconds=0.4) == b"x" * 10


async def test_closing_ends_everything() -> None:
    server = Server(answering(OK), silent)
    async with asyncio.timeout(10), server.serving() as origin, asyncio.TaskGroup() as tasks:
        async with Connections(keep_seconds=10, limit=2) as connections:
            with await send(connections, origin):
                pass  # one is idle
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


async def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    async with Connections(keep_seconds=1, limit=1) as connections:
        for _ in range(2):
            with pytest.raises(Unreachable, match=f"cannot connect to 127.0.0.1:{port}: ") as refused:
                await ask(connections, Origin("127.0.0.1", port))
            assert refused.value.cause.errno == errno.ECONNREFUSED
        for host in ("nowhere.invalid", "a" * 70 + ".invalid"):
            with pytest.raises(Unreachable) as unknown:
                await ask(connections, Origin(host, port))
            assert isinstance(unknown.value.cause, socket.gaierror)
        assert connections._hosts == {}


async def test_what_is_dialled_may_be_another_address() -> None:
    server = Server(answering(OK))
    async with server.serving(), Connections(keep_seconds=1, resolve={"hooks.acc.svc": "127.0.0.1"}.__getitem__) as connections:
        assert await ask(connections, Origin("hooks.acc.svc", server.port)) == b"ok"
        assert b"Host: hooks.acc.svc:" in server.peers[0].requests[0]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
    """Return the context of a server named ``here``, and its authority."""
    directory = tmp_path_factory.mktemp("tls")
    authority = new_authority("a", HOUR, datetime.now(UTC))
    pair = issue(authority, Profile("here", dns_names=("here",), server=True), HOUR, datetime.now(UTC))
    files: tuple[Path, Path] = (directory / "tls.crt", directory / "tls.key")
    for path, content in zip(files, (pair.certificate, pair.key), strict=True):
        write_file(path, content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context, authority.certificate.decode()


async def test_a_certificate_must_carry_the_name_and_be_trusted(tls: tuple[ssl.SSLContext, str]) -> None:
    context, authority = tls
    known, strange = ssl.create_default_context(cadata=authority), ssl.create_default_context()
    server = Server(answering(OK))
    async with server.serving(context) as origin, Connections(keep_seconds=1) as connections:
        assert await ask(connections, origin._replace(tls=known, server_name="here")) == b"ok"
        for other in (origin._replace(tls=known), origin._replace(tls=strange, server_name="here")):
            with pytest.raises(Unreachable) as refused:
                await ask(connections, other)
            assert isinstance(refused.value.cause, ssl.SSLCertVerificationError)
        with pytest.raises(Disconnected):  # TLS is spoken there
            await ask(connections, origin)
        assert await ask(connections, origin._replace(tls=known, server_name="here")) == b"ok"
        assert sum(len(each.requests) for each in server.peers) == 2
        assert len([each for each in server.peers if each.requests]) == 1


async def test_no_tls_where_it_is_expected(tls: tuple[ssl.SSLContext, str]) -> None:
    async def act(peer: Peer) -> None:
        await peer.reader.read(1)
        await peer.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with world(act) as (_, origin, connections):
        with pytest.raises(Unreachable) as refused:
            await ask(connections, origin._replace(tls=ssl.create_default_context(cadata=tls[1])))
        assert isinstance(refused.value.cause, ssl.SSLError)


@pytest.mark.parametrize("seconds", [0.0, 0.002, 0.005, 0.05])
async def test_a_handshake_that_is_cancelled_or_not_answered_leaves_nothing_behind(tls: tuple[ssl.SSLContext, str], seconds: float) -> None:
    async with world(silent, limit=1) as (server, origin, connections):
        stuck = origin._replace(tls=ssl.create_default_context(cadata=tls[1]))
        with pytest.raises(TimeoutError):
            await ask(connections, stuck, connect_seconds=seconds)
        assert connections._hosts == {}
        while any(not peer.reader.at_eof() for peer in server.peers):
            await asyncio.sleep(0.001)


async def test_megabytes_over_tls_come_whole(tls: tuple[ssl.SSLContext, str]) -> None:
    context, authority = tls
    body = bytes(range(256)) * (8 << 12)

    async def act(peer: Peer) -> None:
        assert await peer.hear() == body
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        await peer.say(body)
        await silent(peer)

    server = Server(act)
    async with asyncio.timeout(20), server.serving(context) as plain, Connections(keep_seconds=1) as connections:
        origin = plain._replace(tls=ssl.create_default_context(cadata=authority), server_name="here")
        with await send(connections, origin, "POST", body) as response:
            assert await response.read(len(body)) == body


class Made:
    """What an address gave."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


async def test_the_first_address_that_answers_wins() -> None:
    begun: list[str] = []
    made: list[Made] = []
    stuck = asyncio.Event()

    async def dial(address: str) -> Made:
        begun.append(address)
        if address == "refused":
            raise ConnectionRefusedError(errno.ECONNREFUSED, address)
        if address == "stuck":
            await stuck.wait()
        await asyncio.sleep(0)
        made.append(Made(address))
        return made[-1]

    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await dialling.first(["refused", "good", "late"], dial)).address == "good"
    assert loop.time() - began < dialling.STAGGER_SECONDS
    assert begun == ["refused", "good"]
    assert (await dialling.first(["stuck", "good"], dial)).address == "good"
    with pytest.raises(ConnectionRefusedError):
        await dialling.first(["refused", "refused"], dial)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(dialling.STAGGER_SECONDS * 1.5):
            await dialling.first(["stuck", "stuck"], dial)
    assert len(made) == 2


async def test_addresses_of_both_families_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    found = [(six, 1, 6, "", ("2001:db8::1", 1, 0, 0)), (six, 1, 6, "", ("2001:db8::2", 1, 0, 0)), (four, 1, 6, "", ("192.0.2.1", 1))]

    def answer(*_: object, flags: int = 0, **__: object) -> object:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        return found

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    monkeypatch.setattr(asyncio.get_running_loop().__class__, "getaddrinfo", resolved(found), raising=False)
    assert await dialling.addresses("a.test", 1) == ["2001:db8::1", "192.0.2.1", "2001:db8::2"]


def resolved(found: object) -> Callable[..., Awaitable[object]]:
    async def getaddrinfo(*_: object, **__: object) -> object:
        return found

    return getaddrinfo
