"""Websockets, with the library's client over a transport in memory."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.streams import StreamReader
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from apiserver.endpoints.http import upgrade
from apiserver.endpoints.http.messages import Request, Response
from apiserver.endpoints.http.upgrade import Closed
from apiserver.endpoints.http.websocket import WebSocket
from tests.unit.apiserver.endpoints.http.transports import Line, settle
from tests.unit.controller.virtualtime import in_virtual_time

TOKEN = "base64url.bearer.authorization.k8s.io.dG9rZW4"


def decoded(frame: bytes) -> Frame:
    reader = StreamReader()
    reader.feed_data(frame)
    with pytest.raises(StopIteration) as returned:
        next(Frame.parse(reader.read_exact, mask=True))
    found: Frame = returned.value.value
    return found


class Peer:
    def __init__(self, *protocols: str, ping_seconds: float = 0, max_bytes: int = 1000) -> None:
        self.ended: list[Closed] = []
        self.sockets: list[WebSocket] = []
        self.ping_seconds = ping_seconds
        self.max_bytes = max_bytes
        self.line = Line(self.serve)
        self.client = ClientProtocol(parse_uri("ws://h/"), subprotocols=[Subprotocol(each) for each in protocols] or None)
        self.client.send_request(self.client.connect())

    async def serve(self, request: Request) -> Response:
        if not upgrade.is_well_formed(request):
            return Response(status=400)
        socket = WebSocket(request, protocols=("b", "a", TOKEN), ping_seconds=self.ping_seconds, max_bytes=self.max_bytes)
        self.sockets.append(socket)
        socket.headers["Audit-Id"] = "x"
        await socket.accept()
        try:
            while True:
                frame = decoded(await socket.receive_frames())
                if frame.data == b"bye":
                    await socket.end(1000, "as you said")
                    return socket
                socket.push(frame.serialize(mask=False))
        except Closed as closed:
            self.ended.append(closed)
        return socket

    async def exchange(self) -> list[Frame]:
        frames = []
        for _ in range(5):
            for data in self.client.data_to_send():
                if data and not self.line.is_closed():
                    self.line.connection.data_received(data)
            await settle()
            if answer := self.line.take():
                self.client.receive_data(answer)
            frames += [each for each in self.client.events_received() if isinstance(each, Frame)]
        return frames


async def test_messages_flow_both_ways_and_close_ends_the_connection() -> None:
    peer = Peer(TOKEN, "a")
    await peer.exchange()
    assert (peer.client.state, peer.client.subprotocol) == (State.OPEN, "a")
    assert peer.client.handshake_exc is None
    peer.client.send_text("ä".encode())
    peer.client.send_binary(b"\x00")
    frames = await peer.exchange()
    assert [(each.opcode, bytes(each.data)) for each in frames] == [(Opcode.TEXT, "ä".encode()), (Opcode.BINARY, b"\x00")]
    peer.client.send_text(b"bye")
    await peer.exchange()
    assert (peer.client.close_rcvd and peer.client.close_rcvd.reason, peer.line.is_closed()) == ("as you said", True)
    await peer.line.end()


async def test_a_binary_message_is_passed_on_as_it_came() -> None:
    sent, got = masked(Opcode.BINARY, b"x" * 70), []

    async def serve(request: Request) -> Response:
        socket = WebSocket(request, max_bytes=70)
        await socket.accept()
        got.append(await socket.receive_frames())
        return socket

    for pieces in ([sent], [sent[:1], sent[1:]], [sent[:3], sent[3:9], sent[9:]]):
        peer = Peer()
        peer.line = Line(serve)
        await peer.exchange()
        for each in pieces:
            peer.line.connection.data_received(each)
        await peer.line.end()
    assert {decoded(each).data for each in got} == {b"x" * 70}
    assert (got[0], got[2]) == (sent, sent)


async def test_a_token_is_never_the_protocol() -> None:
    peer = Peer(TOKEN)
    await peer.exchange()
    assert peer.sockets[0].subprotocol == ""
    await peer.line.end()


async def test_the_clients_reason_is_told() -> None:
    peer = Peer()
    await peer.exchange()
    peer.client.send_close(4000, "why not")
    await peer.exchange()
    assert [(each.code, each.reason) for each in peer.ended] == [(4000, "why not")]
    assert peer.line.is_closed()
    await peer.line.end()


async def test_parts_make_a_message_of_bounded_size() -> None:
    peer = Peer()
    await peer.exchange()
    peer.client.send_binary(b"x" * 400, fin=False)
    peer.client.send_continuation(b"y", fin=True)
    assert [(each.opcode, len(each.data), each.fin) for each in await peer.exchange()] == [
        (Opcode.BINARY, 400, False),
        (Opcode.CONT, 1, True),
    ]
    peer.client.send_binary(b"x" * 600, fin=False)
    peer.client.send_continuation(b"y" * 600, fin=True)
    await peer.exchange()
    assert peer.client.close_rcvd is not None
    assert peer.client.close_rcvd.code == 1009
    assert peer.line.is_closed()
    await peer.line.end()


@pytest.mark.parametrize("raw", [b"\x81\x05hello", b"\xff\xff\xff\xff", b"\x83\x80aaaa"])
async def test_frames_that_break_the_rules_end_the_socket(raw: bytes) -> None:
    peer = Peer()
    await peer.exchange()
    peer.line.connection.data_received(raw)
    await peer.exchange()
    assert peer.client.close_rcvd is not None
    assert peer.client.close_rcvd.code == 1002
    assert peer.line.is_closed()
    await peer.line.end()


@in_virtual_time
async def test_pings_are_answered_and_silent_clients_are_closed() -> None:
    peer = Peer(ping_seconds=0.1)
    await peer.exchange()
    peer.client.send_ping(b"p")
    assert [(each.opcode, bytes(each.data)) for each in await peer.exchange()][-1] == (Opcode.PONG, b"p")
    await asyncio.sleep(0.12)
    assert Opcode.PING in {each.opcode for each in await peer.exchange()}
    await asyncio.sleep(0.12)
    assert not peer.line.is_closed()
    await asyncio.sleep(0.12)
    assert peer.line.is_closed()
    await peer.line.end()


async def test_pongs_that_the_client_does_not_read_are_not_kept() -> None:
    peer = Peer()
    await peer.exchange()
    peer.line.connection.pause_writing()
    for _ in range(50):
        peer.client.send_ping(b"p" * 100)
    for data in peer.client.data_to_send():
        peer.line.connection.data_received(data)
    assert peer.line.take() == b""
    await peer.line.end()


def masked(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=True)


def endless(*frames: bytes) -> bytes:
    """Return about 64 KiB of whole frames, as one read of a socket would."""
    once = b"".join(frames)
    return once * max(1, (64 << 10) // len(once))


async def flooded(flood: bytes, max_bytes: int) -> tuple[int, int, Peer]:
    waiting, accepted = asyncio.Event(), asyncio.Event()

    async def serve(request: Request) -> Response:
        socket = WebSocket(request, max_bytes=max_bytes)
        peer.sockets.append(socket)
        await socket.accept()
        accepted.set()
        await waiting.wait()
        return socket

    peer = Peer()
    peer.line = Line(serve)
    await peer.exchange()
    await accepted.wait()
    sent = 0
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        while peer.line.transport.reading and sent < 64 << 20:
            peer.line.connection.data_received(flood)
            sent += len(flood)
        return sent, tracemalloc.get_traced_memory()[0] - before, peer
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "flood",
    [
        endless(masked(Opcode.BINARY, b"x" * (64 << 10))),
        endless(masked(Opcode.BINARY, b"x" * 1000)),
        endless(masked(Opcode.BINARY, b"xy")),
        endless(masked(Opcode.TEXT, b"")),
    ],
    ids=["long messages", "messages", "keys", "empty messages"],
)
async def test_unreceived_messages_are_bounded_in_bytes(flood: bytes) -> None:
    sent, taken, peer = await flooded(flood, 64 << 10)

    assert not peer.line.transport.reading
    assert sent <= 256 << 10
    assert taken <= 256 << 10
    await peer.line.end()


async def test_held_messages_arrive_in_order_and_reading_resumes() -> None:
    numbers = [str(number).encode() for number in range(20000)]
    flood = b"".join(masked(Opcode.BINARY, each) for each in numbers)
    _, _, peer = await flooded(flood, 64 << 10)
    assert [decoded(await peer.sockets[0].receive_frames()).data for _ in numbers] == numbers
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(peer.sockets[0].receive_frames())
        await settle()
        assert peer.line.transport.reading
        peer.line.connection.data_received(masked(Opcode.BINARY, b"one more"))
        assert decoded(await task).data == b"one more"
    await peer.line.end()


async def test_parts_of_a_message_are_bounded_together() -> None:
    first = masked(Opcode.BINARY, b"x" * 1000, fin=False)
    _, taken, peer = await flooded(first + endless(masked(Opcode.CONT, b"x" * 1000, fin=False)), 64 << 10)
    assert taken <= 256 << 10
    socket = peer.sockets[0]

    async def receive_all() -> None:
        while True:
            await socket.receive_frames()

    with pytest.raises(Closed):
        await receive_all()
    assert Frame(Opcode.CLOSE, (1009).to_bytes(2, "big")).serialize(mask=False)[2:] in peer.line.take()
    await peer.line.end()


async def test_a_compressed_message_is_no_message() -> None:
    peer = Peer()
    await peer.exchange()
    assert not peer.client.extensions
    plain = masked(Opcode.BINARY, b"x")
    peer.line.connection.data_received(bytes([plain[0] | 0x40]) + plain[1:])  # RSV1: permessage-deflate's bit (RFC 7692, 6)
    await settle()
    assert [each.code for each in peer.ended] == [1006]
    assert (1002).to_bytes(2, "big") in peer.line.take()
    await peer.line.end()


@pytest.mark.parametrize("read", [0, 1], ids=["nothing", "a message"])
async def test_client_we_do_not_read_is_not_closed_for_silence(read: int) -> None:
    waiting = asyncio.Event()

    async def serve(request: Request) -> Response:
        socket = WebSocket(request, ping_seconds=0.02)
        await socket.accept()
        for _ in range(read):
            await socket.receive_frames()
        await waiting.wait()
        return socket

    peer = Peer()
    peer.line = Line(serve)
    await peer.exchange()
    while peer.line.transport.reading:
        peer.line.connection.data_received(endless(masked(Opcode.BINARY, b"x" * 1000)))
    await asyncio.sleep(0.1)
    assert not peer.line.is_closed()
    await peer.line.end()


async def test_invalid_upgrades_are_distinguished() -> None:
    seen: list[tuple[bool, bool]] = []

    async def look(request: Request) -> Response:
        seen.append((upgrade.is_upgrade(request), upgrade.is_well_formed(request)))
        return Response()

    line = Line(look)
    full = b"Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    full += b"Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n"
    for fields in (full, full.replace(b"13", b"12"), full.replace(b"x3", b"x"), full.replace(b", Upgrade", b"")):
        await line.send(b"GET / HTTP/1.1\r\nHost: h\r\n" + fields + b"\r\n")
    assert seen == [(True, True), (True, False), (True, False), (False, True)]
    await line.end()
