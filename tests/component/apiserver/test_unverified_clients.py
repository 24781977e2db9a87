"""What unauthenticated peers can use; ``make bench-attacks`` measures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from apiserver.endpoints.http.connection import Connection
from apiserver.server import serving as listening
from apiserver.server.options import Times
from benchmarks.attacks.wire import Wire
from tests.component.apiserver.conftest import Api, Pki, serving
from tests.component.apiserver.widgets import WIDGETS, widget
from tests.own_time import promptly

GET = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
BEGUN = b"GET /livez HTTP/1.1\r\nHost: a\r\nX: "
HERE, ELSEWHERE = "127.0.0.2", "127.0.0.3"
PER_ADDRESS, UNVERIFIED, SHAKING, SHAKING_PER_ADDRESS = 64, 512, 1024, 512


@dataclass
class Exposed:
    api: Api
    listener: listening.Listener
    wires: list[Wire]

    @property
    def port(self) -> int:
        return int(self.api.url.rpartition(":")[2])

    async def connect(self, address: str = HERE, *, shaken: bool = True, **more: Any) -> Wire:
        wire = await Wire.connect(self.port, address, **more)
        self.wires.append(wire)
        if shaken:
            await wire.shake()
        return wire

    async def crowd(self, count: int, addresses: Sequence[str] = (HERE,), *, shaken: bool = True) -> list[Wire]:
        found = [await self.connect(addresses[number % len(addresses)], shaken=shaken) for number in range(count)]
        await self.until(lambda: not shaken or self.unverified >= min(count, PER_ADDRESS * len(addresses), UNVERIFIED))
        return found

    @property
    def unverified(self) -> int:
        return sum(each.certificate is None for each in self._connections())

    def waiting(self) -> int:
        return max(len(each._reader) for each in self._connections())

    def _connections(self) -> list[Connection]:
        assert self.listener._server is not None
        return [each for each in self.listener._server._connections if isinstance(each, Connection)]

    async def until(self, holds: Callable[[], object]) -> None:
        await promptly(holds, 10)

    async def is_open(self, wire: Wire) -> bool:
        try:
            await wire.say(GET)
            return b"200 OK" in await wire.hear()
        except ConnectionError:
            return False

    async def serves(self, pki: Pki) -> bool:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=pki.client("developer"), local_addr=(HERE, 0))
            writer.write(b"GET %b/w1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % WIDGETS.path("acc").encode())
            answer = await reader.read()
            writer.close()
        return b"200 OK" in answer and b'"w1"' in answer


@asynccontextmanager
async def exposing(pki: Pki, *flags: str, times: Times | None = None) -> AsyncIterator[Exposed]:
    async with serving(pki, *flags, times=times) as api:
        await api.make(widget())
        exposed = Exposed(api, api.process.listener, [])
        try:
            yield exposed
        finally:
            for each in exposed.wires:
                each.abort()


def allowing(**seconds: Any) -> Times:
    settings = Times().connections
    return Times(connections=replace(settings, unverified=replace(settings.unverified, **seconds)))


@pytest.fixture
async def exposed(pki: Pki) -> AsyncIterator[Exposed]:
    async with exposing(pki, times=allowing(head_seconds=600.0)) as made:  # however long the handshakes of all of them take
        yield made


async def gone(wires: Sequence[Wire], count: int) -> bool:
    await promptly(lambda: sum(not each.is_open for each in wires) >= count, 10)
    await asyncio.sleep(0.1)
    return sum(not each.is_open for each in wires) == count


async def test_connections_that_say_nothing_are_few(exposed: Exposed, pki: Pki) -> None:
    silent = await exposed.crowd(SHAKING_PER_ADDRESS + 50, shaken=False)
    assert await gone(silent, 50)
    assert await exposed.serves(pki)


async def test_half_a_handshake_holds_no_place_for_others(exposed: Exposed, pki: Pki) -> None:
    wires = await exposed.crowd(SHAKING_PER_ADDRESS + 50, shaken=False)
    for each in wires:
        each.send(each.hello()[:100])
    assert await gone(wires, 50)
    assert await exposed.serves(pki)


async def test_unverified_clients_of_one_address_are_few(exposed: Exposed, pki: Pki) -> None:
    unverified = await exposed.crowd(PER_ADDRESS + 20)
    assert await gone(unverified, 20)
    assert await exposed.is_open(unverified[-1])
    assert await exposed.is_open(await exposed.connect(ELSEWHERE))
    assert await exposed.serves(pki)


async def test_unverified_clients_of_many_addresses_are_few(exposed: Exposed, pki: Pki) -> None:
    alone = await exposed.connect(ELSEWHERE)
    unverified = await exposed.crowd(UNVERIFIED + 40, [f"127.0.1.{number + 1}" for number in range(10)])
    assert await gone(unverified, 41)
    assert await exposed.is_open(alone), "the others take places from each other"
    assert await exposed.serves(pki)


async def test_half_sent_heads_end_at_16_kib(exposed: Exposed, pki: Pki) -> None:
    wires = await exposed.crowd(PER_ADDRESS)
    for each in wires:
        await each.say(BEGUN + b"x" * (15 << 10))
    await exposed.until(lambda: exposed.waiting() > 15 << 10)
    for each in wires:
        await each.say(b"x" * (4 << 10))
    for each in wires:
        head, _, body = (await each.hear()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
        status = json.loads(body)
        assert (status["kind"], status["code"], status["message"]) == ("Status", 431, "the request's header fields are too large")
    assert await gone(wires, PER_ADDRESS)
    assert await exposed.serves(pki)


async def test_heads_of_very_many_fields_are_refused(exposed: Exposed) -> None:
    wire = await exposed.connect()
    await wire.say(b"GET /livez HTTP/1.1\r\nHost: a\r\n" + b"x:\r\n" * 500 + b"\r\n")
    assert (await wire.hear()).startswith(b"HTTP/1.1 431 ")


async def test_heads_of_unverified_clients_evict_nothing_remembered(exposed: Exposed) -> None:
    wire = await exposed.connect()
    server = exposed.listener._server
    assert server is not None
    known = set(server.heads._known)
    for number in range(600):
        await wire.say(b"GET /livez HTTP/1.1\r\nHost: a\r\nN: %d\r\n\r\n" % number)
        assert await wire.hear()
    assert set(server.heads._known) == known


async def test_a_head_that_comes_slowly_has_its_time(pki: Pki) -> None:
    async with exposing(pki, times=allowing(head_seconds=0.5)) as exposed, asyncio.timeout(10):
        wire = await exposed.connect()
        await wire.say(BEGUN)
        with suppress(ConnectionError):
            while wire.is_open:
                await asyncio.sleep(0.1)
                await wire.say(b"x")
        assert await exposed.serves(pki)


async def test_overlong_first_tls_message_closes_the_connection(exposed: Exposed, pki: Pki) -> None:
    wires = await exposed.crowd(20, shaken=False)
    for each in wires:
        each.send(b"\x16\x03\x01\x40\x00\x01" + (131_000).to_bytes(3, "big") + b"\x03\x03" + b"x" * 16_000)
    assert await gone(wires, 20)
    assert await exposed.serves(pki)


async def test_requests_without_end_do_not_pile_up(exposed: Exposed, pki: Pki) -> None:
    wire = await exposed.connect(reads=False)
    most = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(3):
            while True:
                await wire.say(GET * 500)
                await asyncio.sleep(0)
                most = max(most, exposed.waiting())
    assert 0 < most <= 2 * (16 << 10)
    assert await exposed.serves(pki)


async def test_unread_answers_time_out(pki: Pki) -> None:
    async with exposing(pki, times=allowing(stall_seconds=0.5)) as exposed:
        wire = await exposed.connect(reads=False, room=4096)
        await exposed.until(lambda: exposed.unverified == 1)
        async with asyncio.timeout(20):
            while exposed.unverified:
                try:
                    async with asyncio.timeout(0.2):
                        await wire.say(GET * 100)
                except (TimeoutError, ConnectionError):
                    await asyncio.sleep(0.1)
        assert await exposed.serves(pki)


async def test_endless_tls_key_updates_close_the_connection(exposed: Exposed, pki: Pki) -> None:
    wire = await exposed.connect(reads=False, room=4096)
    await exposed.until(lambda: exposed.unverified == 1)
    async with asyncio.timeout(20):
        for _ in range(20):
            wire.send(wire.ask_for_keys(200))
        while exposed.unverified:
            await asyncio.sleep(0.05)
    assert await exposed.serves(pki)


async def test_a_body_is_not_read_before_it_is_known_who_sends_it(pki: Pki) -> None:
    async with exposing(pki, "--no-anonymous-auth") as exposed:
        wire = await exposed.connect()
        path = WIDGETS.path("acc").encode()
        await wire.say(b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\nExpect: 100-continue\r\n\r\n" % path)
        async with asyncio.timeout(30):
            answer = await wire.hear()
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"Connection: close" in answer


async def test_handshake_flood_leaves_known_clients_their_turn(exposed: Exposed, pki: Pki) -> None:
    stop = asyncio.Event()
    hello = (await exposed.connect(shaken=False)).hello()

    async def flood(number: int) -> None:
        while not stop.is_set():
            try:
                wire = await Wire.connect(exposed.port, f"127.0.2.{number + 1}")
                wire.send(hello)
                await wire.reader.read(1)
                wire.abort()
            except ConnectionError:
                continue

    async with asyncio.TaskGroup() as tasks:
        for number in range(30):
            tasks.create_task(flood(number))
        served = [await exposed.serves(pki) for _ in range(5)]
        kept = [(await exposed.api.get("w1")).code for _ in range(20)]
        stop.set()
    assert (served, kept) == ([True] * 5, [200] * 20)


async def test_the_flags_say_how_many(pki: Pki) -> None:
    flags = ("--max-unverified-connections=6", "--max-unverified-connections-per-address=4", "--max-connections=3")
    async with exposing(pki, *flags) as exposed:
        unverified = [await exposed.connect() for _ in range(6)]
        assert await gone(unverified, 2)
        others = [await exposed.connect(ELSEWHERE) for _ in range(4)]
        assert await gone([*unverified, *others], 4)
        page = (await exposed.api.get("/metrics")).body.decode()
        assert 'apiserver_connections{kind="unverified"} 6\n' in page
        assert 'apiserver_connections{kind="verified"} 1\n' in page
        assert 'apiserver_connections_taken_away_total{kind="unverified"} 4\n' in page
        assert 'apiserver_connections_taken_away_total{kind="verified"} 0\n' in page
        assert "apiserver_tls_handshake_errors_total 0\n" in page
