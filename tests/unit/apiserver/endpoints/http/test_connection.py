from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from apiserver.endpoints.http.allowances import UNVERIFIED
from apiserver.endpoints.http.connection import SLICE
from apiserver.endpoints.http.messages import BodyError, BodyTooLarge, Joined, Request, Response, Stream
from tests.unit.apiserver.endpoints.http.transports import QUICK, Line, settle
from tests.unit.controller.virtualtime import in_virtual_time

GET = b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n"


class Handler:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.release = asyncio.Event()
        self.cancelled = 0

    async def __call__(self, request: Request) -> Response:
        self.seen.append(request.target)
        try:
            return await self._answer(request)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def _answer(self, request: Request) -> Response:
        match request.path:
            case "/echo":
                try:
                    return Response(body=await request.read(1000), content_type="application/json")
                except BodyTooLarge:
                    return Response(status=413)
                except BodyError:
                    return Response(status=400)
            case "/wait":
                await self.release.wait()
                return Response(body=b"waited")
            case "/stream":
                stream = Stream(request, content_type="application/json")
                await stream.prepare()
                await stream.write(b"one")
                await self.release.wait()
                await stream.write(b"two")
                await stream.end()
                return stream
            case "/broken-stream":
                stream = Stream(request)
                await stream.prepare()
                return Response(status=500)
            case "/fails":
                raise RuntimeError("on purpose")
            case "/large":
                return Response(body=Joined(b"", [b"x" * SLICE] * 3, b"", number=3, length=3 * SLICE))
            case "/none":
                return Response(status=304, headers={"ETag": '"x"'})
            case _:
                return Response(body=request.path.encode(), headers={"X-A": "b"})


@pytest.fixture
async def handler() -> Handler:
    return Handler()


@pytest.fixture
async def line(handler: Handler) -> AsyncIterator[Line]:
    made = Line(handler)
    yield made
    await made.end()


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


async def test_an_answer_has_its_length_date_and_fields(line: Line) -> None:
    answer = await line.send(GET % b"x")
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert (lines[0], body) == (b"HTTP/1.1 200 OK", b"/x")
    assert {b"Content-Length: 2", b"X-A: b"} <= set(lines)
    assert any(each.startswith(b"Date: ") and each.endswith(b" GMT") for each in lines)
    assert not line.is_closed()


async def test_requests_sent_ahead_are_answered_in_order(line: Line, handler: Handler) -> None:
    answer = await line.send(GET % b"wait" + GET % b"b" + b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi" + GET % b"c")
    assert (answer, handler.seen) == (b"", ["/wait"])
    handler.release.set()
    await settle()
    answer = line.take()
    bodies = [answer.index(each) for each in (b"waited", b"/b", b"hi", b"/c")]
    assert bodies == sorted(bodies)


async def test_endless_pipelining_is_not_read(line: Line, handler: Handler) -> None:
    await line.send(GET % b"wait")
    while line.transport.reading:
        await line.send((GET % b"b") * 1000)
    assert len(line.connection._reader) < UNVERIFIED.waiting_bytes + 50_000
    handler.release.set()
    while not line.transport.reading:
        await settle()


async def test_pipelined_input_does_not_grow_with_answers(line: Line) -> None:
    """Otherwise each small request that an answer consumes would resume a whole read."""
    ahead = (GET % b"b") * 100
    for _ in range(1000):
        if line.transport.reading:
            line.connection.data_received(ahead)
        await asyncio.sleep(0)
        assert len(line.connection._reader) <= UNVERIFIED.waiting_bytes + len(ahead)


@pytest.mark.parametrize("cut", [1, 7, 1000])
async def test_a_body_is_read_however_it_comes(line: Line, cut: int) -> None:
    for raw in (
        b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    ):
        answer = await line.send(*[raw[start : start + cut] for start in range(0, len(raw), cut)])
        assert body_of(answer) == b"hello"


async def test_expect_100_is_answered_once_the_body_is_wanted(line: Line) -> None:
    head = b"POST /%b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    assert await line.send(head % b"echo") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert body_of(await line.send(b"hello")) == b"hello"
    refused = await line.send(head % b"unread")
    assert refused.startswith(b"HTTP/1.1 200 OK")
    assert b"Connection: close" in refused, "nobody can say where the next request begins"


async def test_oversized_body_is_not_read_and_closes_the_connection(line: Line) -> None:
    answer = await line.send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\n", b"x" * 1000)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"Connection: close" in answer
    assert not line.is_closed(), "the client still sends: it is to read the answer first"
    assert await line.send(b"x" * 1000, GET % b"smuggled") == b""
    await asyncio.sleep(0.3)
    assert line.is_closed()


async def test_malformed_chunks_are_400_and_end_the_connection(line: Line, handler: Handler) -> None:
    answer = await line.send(b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + GET % b"smuggled")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert line.is_closed()
    assert handler.seen == ["/echo"]


async def test_malformed_request_is_400_and_closes_the_connection(line: Line, handler: Handler) -> None:
    answer = await line.send(b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET % b"x")
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"Connection: close" in answer
    assert (line.is_closed(), handler.seen) == (True, [])


async def test_head_and_304_have_no_body(line: Line) -> None:
    answer = await line.send(b"HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n")
    assert b"Content-Length: 2" in answer
    assert body_of(answer) == b""
    answer = await line.send(GET % b"none")
    assert b"Content-Length" not in answer
    assert (b'ETag: "x"' in answer, body_of(answer)) == (True, b"")


async def test_connections_end_when_the_client_says_so(handler: Handler) -> None:
    for raw in (b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", b"GET /x HTTP/1.0\r\n\r\n"):
        line = Line(handler)
        assert b"Connection: close" in await line.send(raw)
        assert line.is_closed()
        await line.end()


async def test_a_stream_is_chunked_and_each_piece_sent_at_once(line: Line, handler: Handler) -> None:
    answer = await line.send(GET % b"stream")
    assert b"Transfer-Encoding: chunked" in answer
    assert body_of(answer) == b"3\r\none\r\n"
    handler.release.set()
    await settle()
    assert line.take() == b"3\r\ntwo\r\n0\r\n\r\n"
    assert body_of(await line.send(GET % b"x")) == b"/x"


async def test_a_stream_to_an_old_client_ends_with_its_connection(handler: Handler) -> None:
    line = Line(handler)
    handler.release.set()
    assert body_of(await line.send(b"GET /stream HTTP/1.0\r\n\r\n")) == b"onetwo"
    assert line.is_closed()
    await line.end()


async def test_a_stream_that_fails_is_cut_off(line: Line) -> None:
    answer = await line.send(GET % b"broken-stream")
    assert b"500" not in answer
    assert line.is_closed()


async def test_an_error_of_ours_ends_the_connection_and_is_logged(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    assert await line.send(GET % b"fails") == b""
    assert line.is_closed()
    assert "on purpose" in caplog.text


async def test_a_client_that_goes_away_cancels_the_handler(line: Line, handler: Handler) -> None:
    await line.send(GET % b"wait")
    line.transport.close()
    await settle()
    assert handler.cancelled == 1
    assert len(line.server) == 0


@in_virtual_time
async def test_writer_waits_for_a_slow_client_and_closes_it(handler: Handler) -> None:
    line = Line(handler)
    line.transport.full = True
    await line.send()
    line.connection.data_received(GET % b"large")
    await settle()
    assert SLICE < len(line.take()) < 2 * SLICE
    line.transport.drained()
    await settle()
    assert len(line.take()) > SLICE
    line.transport.full = True
    line.connection.data_received(GET % b"large")
    await asyncio.sleep(0.2)
    assert not line.is_closed()
    await asyncio.sleep(0.3)
    assert line.is_closed()
    await line.end()


async def test_requests_behind_an_answer_that_is_not_read_wait(line: Line, handler: Handler) -> None:
    line.transport.full = True
    await line.send((GET % b"x") * 50)
    assert handler.seen == ["/x"]
    line.transport.drained()
    await settle()
    assert len(handler.seen) > 5


@in_virtual_time
async def test_every_head_has_its_time(handler: Handler) -> None:
    line = Line(handler)
    await asyncio.sleep(0.4)
    assert line.is_closed(), "who never asks"
    line = Line(handler)
    await line.send(GET % b"x")
    await asyncio.sleep(0.5)
    assert not line.is_closed(), "between requests there is more time"
    line.connection.data_received(b"GET / HT")
    for _ in range(8):
        await asyncio.sleep(0.05)
        if not line.is_closed():
            line.connection.data_received(b"T")
    assert line.is_closed(), "who begins a head has to end it"
    line = Line(handler)
    await line.send(GET % b"x")
    await asyncio.sleep(1.1)
    assert line.is_closed()


async def test_draining_server_answers_current_and_arriving_requests(handler: Handler) -> None:
    busy, idle = Line(handler), Line(handler)
    idle.server = busy.server
    await idle.send(GET % b"x")
    await busy.send(GET % b"wait")
    async with asyncio.TaskGroup() as tasks:
        stopping = tasks.create_task(busy.server.shutdown(20))
        await settle()
        assert not stopping.done()
        handler.release.set()
        await settle()
        answer = busy.take()
        assert answer.endswith(b"waited")
        assert b"Connection: close" in answer
    assert busy.is_closed()


@in_virtual_time
async def test_a_drain_has_an_end(handler: Handler) -> None:
    line = Line(handler)
    await line.send(GET % b"wait")
    before = asyncio.get_running_loop().time()
    await line.server.shutdown(0.3)
    await settle()
    assert asyncio.get_running_loop().time() - before == pytest.approx(0.3, abs=0.2)
    assert (line.is_closed(), handler.cancelled) == (True, 1)


async def test_idle_connection_is_answered_while_the_server_drains(handler: Handler) -> None:
    line = Line(handler)
    await line.send(GET % b"x")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(line.server.shutdown(20))
        await asyncio.sleep(0.05)
        answer = await line.send(GET % b"late")
        assert body_of(answer) == b"/late"
        assert b"Connection: close" in answer
    assert line.is_closed()


async def test_queries_and_paths_are_decoded(handler: Handler) -> None:
    seen: list[Request] = []

    async def keep(request: Request) -> Response:
        seen.append(request)
        return Response()

    line = Line(keep)
    await line.send(b"GET /a%2fb%20c?x=1&x=2+3&y=&z&%C3%A4=%ff HTTP/1.1\r\nHost: h\r\nAudit-Id: q\r\n\r\n")
    request = seen[0]
    assert request.path == "/a/b c"
    assert request.query.getall("x") == ["1", "2 3"]
    assert (request.query["y"], request.query["z"], request.query["ä"]) == ("", "", "\ufffd")
    assert (request.given_audit_id, request.content_length) == ("q", 0)
    await line.end()


async def test_response_headers_cannot_break_the_head() -> None:
    for headers in ({"X": "a\r\nB: c"}, {"X\r\n": "a"}, {"": "a"}, {"X": "\x00"}):
        with pytest.raises(ValueError, match="header field"):
            Response(headers=headers).head(b"", close=False)


HEAD = b"GET /x HTTP/1.1\r\nHost: h\r\nX: "


def status_of(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Type: application/json" in head
    found: dict[str, Any] = json.loads(body)
    return found


@pytest.mark.parametrize("piece", [1 << 20, 1000, 1])
async def test_a_head_of_who_has_shown_nothing_ends_at_16_kib(handler: Handler, piece: int) -> None:
    line = Line(handler)
    raw = HEAD + b"x" * (16 << 10)
    answer = b""
    for start in range(0, len(raw), piece):
        line.connection.data_received(raw[start : start + piece])
        assert len(line.connection._reader) <= (16 << 10) + 3
    await settle()
    answer = line.take()
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    status = status_of(answer)
    assert (status["kind"], status["code"], status["message"]) == ("Status", 431, "the request's header fields are too large")
    assert (line.is_closed(), handler.seen, len(line.connection._reader)) == (True, [], 0)


async def test_a_head_of_who_has_shown_a_certificate_may_be_longer(handler: Handler) -> None:
    for size, code in ((16 << 10, b"200"), (1 << 19, b"200"), (1 << 20, b"431")):
        line = Line(handler, certificate=b"proxy")
        answer = await line.send(HEAD + b"x" * size + b"\r\n\r\n")
        assert answer.split(b" ")[1] == code
        await line.end()


async def test_heads_with_many_fields_need_a_client_certificate(handler: Handler) -> None:
    for fields, certificate, code in ((99, b"", b"200"), (100, b"", b"431"), (999, b"proxy", b"200"), (1000, b"proxy", b"431")):
        line = Line(handler, certificate=certificate)
        answer = await line.send(b"GET /x HTTP/1.1\r\nHost: h\r\n" + b"G: g\r\n" * fields + b"\r\n")
        assert (fields, answer.split(b" ")[1]) == (fields, code)
        await line.end()


async def test_of_long_heads_that_do_not_end_there_are_few(handler: Handler) -> None:
    unhurried = replace(QUICK.verified, head_seconds=60)
    first = Line(handler, replace(QUICK, long_heads=3, verified=unhurried), certificate=b"proxy")
    lines = [first, *(Line(handler, certificate=b"proxy", beside=first) for _ in range(4))]
    for line in lines:
        line.connection.data_received(HEAD + b"x" * (20 << 10))
        line.connection.data_received(b"x" * (20 << 10))
    assert [line.is_closed() for line in lines] == [True, True, False, False, False]
    assert status_of(lines[0].take())["code"] == 431
    assert body_of(await lines[2].send(b"\r\n\r\n")) == b"/x"
    short = Line(handler, certificate=b"proxy", beside=first)
    short.connection.data_received(HEAD)
    another = Line(handler, certificate=b"proxy", beside=first)
    another.connection.data_received(HEAD + b"x" * (20 << 10))
    assert [line.is_closed() for line in (*lines[2:], short, another)] == [False] * 5, "one has ended, and a short one takes no place"
    lines[3].transport.close()
    await settle()
    assert len(first.server._long) == 2
    await first.end()


@in_virtual_time
async def test_unverified_clients_are_given_less_time(handler: Handler) -> None:
    settings = replace(QUICK, unverified=replace(QUICK.unverified, head_seconds=0.1), verified=replace(QUICK.verified, head_seconds=5))
    unverified = Line(handler, settings)
    known = Line(handler, certificate=b"proxy", beside=unverified)
    for line in (unverified, known):
        line.connection.data_received(b"GET / HT")
    await asyncio.sleep(0.3)
    assert (unverified.is_closed(), known.is_closed()) == (True, False)
    await unverified.end()


async def test_heads_of_unverified_clients_are_not_remembered(handler: Handler) -> None:
    unverified = Line(handler)
    known = Line(handler, certificate=b"proxy", beside=unverified)
    for number in range(3):
        await known.send(GET % b"x")
        await unverified.send(b"GET /s HTTP/1.1\r\nHost: h\r\nN: %d\r\n\r\n" % number)
    server = unverified.server
    assert (len(server.heads._known), len(server.unverified_heads._known)) == (1, 0)
    await unverified.end()


async def test_unverified_requests_take_turns_and_others_do_not_wait(handler: Handler) -> None:
    first = Line(handler, replace(QUICK, unverified_requests=2))
    crowd = [first, *(Line(handler, beside=first) for _ in range(20))]
    known = Line(handler, certificate=b"proxy", beside=first)
    for number, line in enumerate(crowd):
        line.connection.data_received(GET % b"s%d" % number)
    known.connection.data_received(GET % b"known")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "/known" in handler.seen
    assert len(handler.seen) <= 1 + 2 * 2
    for line in crowd[10:]:
        line.transport.close()
    await settle()
    assert len(handler.seen) < 22, "who is gone is not answered"
    assert [body_of(line.take()) for line in crowd[:10]] == [b"/s%d" % number for number in range(10)]
    await first.end()
