from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, ConnectionClosedError
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri
from websockets.utils import accept_key

from apiserver.endpoints.verbs.bounded import Bounded

READ = 256 << 10
MESSAGE = 64 << 10


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.written = self.writes = 0
        self.limit = self.read_limit = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limit = high or 0

    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.read_limit = high or 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += len(data)
        self.writes += 1

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.reading = False

    def abort(self) -> None:
        self.reading = False


def connected(kind: type[ClientConnection] = Bounded) -> tuple[ClientConnection, Transport]:
    connection = kind(ClientProtocol(parse_uri("ws://h/"), state=State.OPEN, max_size=MESSAGE), max_queue=(1, 0))
    transport = Transport()
    connection.response = Response(101, "Switching Protocols", Headers())
    connection.connection_made(transport)
    return connection, transport


def frames(data: bytes, opcode: Opcode = Opcode.BINARY) -> bytes:
    once = Frame(opcode, data).serialize(mask=False)
    return once * (READ // len(once))


def framed(data: bytes) -> bytes:
    return Frame(Opcode.BINARY, data).serialize(mask=False)


async def taken(connection: ClientConnection, transport: Transport, flood: bytes) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(64):
            if not transport.reading:
                break
            connection.data_received(flood)
        assert not transport.reading
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("data", [b"x" * MESSAGE, b"x" * 1000, b"xy", b""], ids=["long messages", "messages", "keys", "empty messages"])
async def test_unreceived_frames_are_bounded_in_bytes(data: bytes) -> None:
    connection, transport = connected()
    assert await taken(connection, transport, frames(data)) <= 768 << 10


@pytest.mark.slow
async def test_the_library_alone_would_take_a_hundred_times_as_much() -> None:
    """If this test fails, remove our own class."""
    connection, transport = connected(ClientConnection)
    assert await taken(connection, transport, frames(b"")) > 16 << 20


async def test_all_frames_arrive_in_order_and_reading_resumes() -> None:
    connection, transport = connected()
    numbers = [str(number).encode() for number in range(20000)]
    connection.data_received(b"".join(Frame(Opcode.BINARY, each).serialize(mask=False) for each in numbers))
    assert not transport.reading

    assert [await connection.recv() for _ in numbers] == [framed(each) for each in numbers]
    assert transport.reading


@pytest.mark.parametrize("pieces", [1, 3, 1000])
async def test_frames_behind_the_answer_to_the_upgrade_arrive(pieces: int) -> None:
    protocol = ClientProtocol(parse_uri("ws://h/"), max_size=MESSAGE)
    connection = Bounded(protocol, max_queue=(1, 0))
    connection.connection_made(Transport())
    connection.request = protocol.connect()
    protocol.send_request(connection.request)
    fields = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept_key(protocol.key)}"
    messages = [b"", b"x" * 50_000, b"last"]
    whole = f"HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n\r\n".encode()
    whole += b"".join(Frame(Opcode.BINARY, each).serialize(mask=False) for each in messages)
    step = -(-len(whole) // pieces)
    for start in range(0, len(whole), step):
        connection.data_received(whole[start : start + step])
    assert [await connection.recv() for _ in messages] == [framed(each) for each in messages]


async def test_an_answer_without_upgrade_is_passed_whole() -> None:
    protocol = ClientProtocol(parse_uri("ws://h/"), max_size=MESSAGE)
    connection = Bounded(protocol, max_queue=(1, 0))
    connection.connection_made(Transport())
    protocol.send_request(protocol.connect())
    for each in b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n\xff\xff\xff\xff\xff":
        connection.data_received(bytes((each,)))
    assert connection.response is not None
    assert (connection.response.status_code, connection.response.body) == (404, b"\xff" * 5)


async def test_other_frames_are_decoded_and_passed_on_as_they_were() -> None:
    connection, _ = connected()
    text, first, last = Frame(Opcode.TEXT, b"hello"), Frame(Opcode.BINARY, b"1", fin=False), Frame(Opcode.CONT, b"2")
    sent = [each.serialize(mask=False) for each in (text, first, last)]
    connection.data_received(b"".join(sent))
    assert [await connection.recv() for _ in sent] == sent


async def test_a_masked_message_of_the_server_ends_the_connection() -> None:
    """RFC 6455, 5.1."""
    connection, _ = connected()
    connection.data_received(Frame(Opcode.BINARY, b"x").serialize(mask=True))
    connection.connection_lost(None)
    with pytest.raises(ConnectionClosedError) as closed:
        await connection.recv()
    assert closed.value.sent is not None
    assert closed.value.sent.code == 1002


async def test_frames_are_sent_as_given() -> None:
    connection, transport = connected()
    assert isinstance(connection, Bounded)
    await connection.send_frames(b"x" * 100)
    assert transport.written == 100


async def test_a_ping_is_sent_in_one_write_with_its_frames() -> None:
    connection, transport = connected()
    assert isinstance(connection, Bounded)
    pong = await connection.send_with_ping(b"x" * 100)
    assert transport.writes == 1
    assert transport.written == 100 + 2 + 4 + 8
    assert len(connection.pending_pings) == 1
    connection.connection_lost(None)
    with pytest.raises(ConnectionClosed):
        await pong
    with pytest.raises(ConnectionClosed):
        await (await connection.send_with_ping(b"x" * 100))
    assert transport.writes == 1


async def test_pongs_that_the_server_does_not_take_are_not_kept() -> None:
    connection, transport = connected()
    pings = frames(b"p" * 100, Opcode.PING)
    connection.data_received(pings)
    assert transport.written > 0
    connection.pause_writing()
    before = transport.written
    for _ in range(20):
        connection.data_received(pings)
    assert transport.written == before
    connection.resume_writing()
    connection.data_received(Frame(Opcode.PING, b"still there?").serialize(mask=False))
    assert transport.written > before


async def test_a_goodbye_is_answered_though_the_server_takes_nothing() -> None:
    connection, transport = connected()
    connection.pause_writing()
    before = transport.written
    connection.data_received(Frame(Opcode.CLOSE, (1000).to_bytes(2, "big")).serialize(mask=False))
    assert transport.written > before


async def test_socket_is_not_read_while_frames_await_decoding() -> None:
    connection, transport = connected()
    assert isinstance(connection, Bounded)
    connection.data_received(frames(b"x" * 1000))
    for _ in range(20):
        await connection.recv()
        assert connection._held
        assert not transport.reading


async def test_undeciphered_input_is_bounded() -> None:
    assert 0 < connected()[1].read_limit <= 32 << 10


@pytest.mark.parametrize("how", ["eof", "lost"])
async def test_held_messages_survive_the_servers_close(how: str) -> None:
    connection, transport = connected()
    goodbye = Frame(Opcode.CLOSE, (1000).to_bytes(2, "big") + b"the guest is off").serialize(mask=False)
    connection.data_received(frames(b"x" * 1000)[: 200 * 1004] + goodbye)
    assert not transport.reading
    if how == "eof":
        connection.eof_received()
    connection.connection_lost(None)

    assert [await connection.recv() for _ in range(200)] == [framed(b"x" * 1000)] * 200
    with pytest.raises(ConnectionClosed, match="the guest is off"):
        await connection.recv()


async def test_a_message_that_is_too_long_ends_the_connection() -> None:
    connection, transport = connected()
    connection.data_received(Frame(Opcode.BINARY, b"x" * (MESSAGE + 1)).serialize(mask=False))
    connection.connection_lost(None)
    with pytest.raises(ConnectionClosedError) as closed:
        await connection.recv()
    assert closed.value.sent is not None
    assert closed.value.sent.code == 1009
    assert transport.written > 0
