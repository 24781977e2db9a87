from __future__ import annotations

import _ssl
import asyncio
import ctypes
import ssl
from pathlib import Path
from typing import Any

import pytest

from apiserver.endpoints.http.caps import Caps
from apiserver.endpoints.http.handshakes import Handshakes, Limits
from apiserver.endpoints.http.hello import Hello, completeness
from apiserver.endpoints.http.messages import Request, Response
from apiserver.endpoints.http.server import Server
from tests.unit.apiserver.endpoints.http.test_tls import Contexts, Socket
from tests.unit.apiserver.endpoints.http.transports import settle

GET = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
PLENTY = Caps(1000, 1000)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return Contexts(tmp_path_factory.mktemp("tls"))


class From(Socket):
    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._address, 4711) if name == "peername" else super().get_extra_info(name, default)


class Client:
    """A client's end of a connection, which may stop anywhere."""

    def __init__(self, listener: Listener, address: str, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.transport = From(address)
        self.tls = listener.handshakes()
        self.transport.tls = self.tls
        self.tls.connection_made(self.transport)

    @property
    def is_gone(self) -> bool:
        return self.transport.closed

    def send(self, data: bytes) -> None:
        while data and not self.transport.closed and self.transport.reading:
            place = self.tls.get_buffer(-1)
            count = min(len(data), len(place))
            place[:count] = data[:count]
            self.tls.buffer_updated(count)
            data = data[count:]

    def hello(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.object.do_handshake()
        return self.outgoing.read()

    def has_answer(self) -> bool:
        return bool(self.transport.written)

    def finish(self) -> None:
        self.incoming.write(self.transport.written)
        self.transport.written.clear()
        self.object.do_handshake()
        self.send(self.outgoing.read())

    async def shake(self) -> None:
        self.send(self.hello())
        await settle()
        self.finish()
        await settle()

    async def ask(self) -> bytes:
        self.object.write(GET)
        self.send(self.outgoing.read())
        await settle()
        self.incoming.write(self.transport.written)
        self.transport.written.clear()
        return self.object.read(1 << 16)


class Listener:
    def __init__(
        self, contexts: Contexts, *, handshakes: Caps = PLENTY, unverified: Caps = PLENTY, verified: Caps = PLENTY, seconds: float = 5
    ) -> None:
        async def answer(request: Request) -> Response:
            return Response(body=request.path.encode())

        self.contexts = contexts
        self.server = Server(answer)
        self.handshakes = Handshakes(lambda: contexts.server, self.server, Limits(seconds, handshakes, unverified, verified))

    def client(self, address: str, context: ssl.SSLContext | None = None) -> Client:
        return Client(self, address, context or self.contexts.client)

    async def end(self) -> None:
        await self.server.shutdown(0)
        self.handshakes.abort()
        await settle()
        handshakes = self.handshakes
        assert [len(each) for each in (handshakes.under_way, handshakes.unverified, handshakes.verified)] == [0, 0, 0]
        assert not len(handshakes.turns)
        assert not handshakes.outgoing.pending


async def test_silent_peers_of_an_address_displace_only_each_other(contexts: Contexts) -> None:
    listener = Listener(contexts, handshakes=Caps(10, 4))
    silent = [listener.client("192.0.2.1") for _ in range(50)]
    assert [each.is_gone for each in silent] == [True] * 46 + [False] * 4
    other = listener.client("192.0.2.2")
    await other.shake()
    assert (await other.ask()).endswith(b"/x")
    assert listener.handshakes.under_way.taken_away == 46
    await listener.end()


async def test_many_addresses_do_not_take_the_place_of_who_comes_alone(contexts: Contexts) -> None:
    listener = Listener(contexts, handshakes=Caps(8, 4), unverified=Caps(8, 4))
    crowd = [listener.client(f"192.0.2.{number % 3}") for number in range(8)]
    alone = listener.client("198.51.100.1")
    alone.send(alone.hello())
    crowd += [listener.client(f"192.0.2.{number % 3}") for number in range(100)]
    await settle()
    alone.finish()
    await settle()
    crowd += [listener.client(f"192.0.2.{number % 3}") for number in range(100)]
    assert (await alone.ask()).endswith(b"/x")
    assert sum(not each.is_gone for each in crowd) == 8
    await listener.end()


async def test_unverified_clients_after_the_handshake_count_too(contexts: Contexts) -> None:
    listener = Listener(contexts, unverified=Caps(4, 2))
    clients = [listener.client(f"192.0.2.{number % 4}") for number in range(12)]
    for each in clients:
        await each.shake()
    assert (len(listener.handshakes.unverified), len(listener.server)) == (4, 4)
    assert [each.is_gone for each in clients] == [True] * 8 + [False] * 4
    await listener.end()


async def test_a_certificate_takes_a_connection_out_of_the_crowd(contexts: Contexts) -> None:
    listener = Listener(contexts, handshakes=Caps(4, 2), unverified=Caps(2, 1), verified=Caps(3, 3))
    proxies = [listener.client("192.0.2.1", contexts.proxy) for _ in range(2)]
    for each in proxies:
        await each.shake()
    for _ in range(20):
        await listener.client("192.0.2.1").shake()
        listener.client("192.0.2.1")
    assert [len(each) for each in (listener.handshakes.unverified, listener.handshakes.verified)] == [1, 2]
    for each in proxies:
        assert (await each.ask()).endswith(b"/x")
    await listener.end()


async def test_holders_of_one_certificate_take_no_places_of_another(contexts: Contexts) -> None:
    listener = Listener(contexts, verified=Caps(4, 4))
    proxy = listener.client("192.0.2.1", contexts.proxy)
    await proxy.shake()
    nodes = [listener.client("192.0.2.1", contexts.node) for _ in range(10)]
    for each in nodes:
        await each.shake()
    assert (await proxy.ask()).endswith(b"/x")
    assert sum(not each.is_gone for each in nodes) == 3
    await listener.end()


async def test_addresses_take_turns(contexts: Contexts) -> None:
    listener = Listener(contexts)
    crowd = [listener.client("192.0.2.1") for _ in range(30)]
    for each in crowd:
        each.send(each.hello())
    others = [listener.client(f"192.0.2.{number}") for number in (2, 3)]
    for each in others:
        each.send(each.hello())
    await asyncio.sleep(0)  # in one turn of the event loop
    assert all(each.has_answer() for each in others), "they came last, and need not wait for all the others"
    answered = sum(each.has_answer() for each in crowd)
    assert 0 < answered <= 2, "what is open is served between turns"
    await settle()
    assert all(each.has_answer() for each in crowd)
    await listener.end()


async def test_closed_connections_take_no_handshake_turn(contexts: Contexts) -> None:
    listener = Listener(contexts)
    crowd = [listener.client("192.0.2.1") for _ in range(30)]
    for each in crowd:
        each.send(each.hello())
        each.tls.abort()
    other = listener.client("192.0.2.1")
    other.send(other.hello())
    await asyncio.sleep(0)
    assert other.has_answer()
    await listener.end()


async def test_begun_handshakes_continue_before_new_ones_begin(contexts: Contexts) -> None:
    listener = Listener(contexts)
    client = listener.client("192.0.2.1")
    client.send(client.hello())
    await settle()
    crowd = [listener.client(f"192.0.2.{number}") for number in range(2, 40)]
    for each in crowd:
        each.send(each.hello())
    client.finish()
    await asyncio.sleep(0)
    assert len(listener.server) == 1
    assert sum(each.has_answer() for each in crowd) == 3
    await listener.end()


async def test_half_a_first_message_costs_no_openssl(contexts: Contexts) -> None:
    listener = Listener(contexts)
    client = listener.client("192.0.2.1")
    hello = client.hello()
    for at in range(len(hello) - 1):
        client.send(hello[at : at + 1])
        await asyncio.sleep(0)
    assert client.tls.get_extra_info("ssl_object") is None
    assert not client.has_answer()
    client.send(hello[-1:])
    await settle()
    client.finish()
    await settle()
    assert (await client.ask()).endswith(b"/x")
    await listener.end()


def record(announced: int, body: bytes, first: bytes = b"\x16\x03\x01", length: int = -1) -> bytes:
    message = b"\x01" + announced.to_bytes(3, "big") + body
    return first + (len(message) if length < 0 else length).to_bytes(2, "big") + message


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", Hello.PARTIAL),
        (b"\x16\x03\x01\x00", Hello.PARTIAL),
        (record(100, b"x" * 100), Hello.WHOLE),
        (record(100, b"x" * 100) + b"more", Hello.WHOLE),
        (record(100, b"x" * 99), Hello.WHOLE),
        (record(100, b"x" * 50, length=104), Hello.PARTIAL),
        (record(131_000, b""), Hello.TOO_LONG),
        (record(100, b"", length=17_000), Hello.TOO_LONG),
        (record(16_384, b"", length=16_384), Hello.PARTIAL),
        (record(16_385, b"", length=16_384), Hello.TOO_LONG),
        (record(100, b"", length=16_385), Hello.TOO_LONG),
        (b"\x16\x03\x01\x00\x02\x01\x00" + b"\x16\x03\x01\x40\x00\xff\xff", Hello.TOO_LONG),  # 64 KiB, announced in two records
        (b"\x16\x03\x01\x00\x04\x01\x00\x01\x00" + b"\x16\x03\x01\x01\x00", Hello.WHOLE),
        (b"\x16\x03\x01\x00\x05\x02\xff\xff\xff", Hello.WHOLE),  # not a client's first message: OpenSSL allocates nothing for it
        (b"GET / HTTP/1.1\r\n", Hello.WHOLE),
        (b"G", Hello.WHOLE),
        (b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00", Hello.WHOLE),
    ],
)
def test_the_first_record_is_judged_before_openssl_sees_it(data: bytes, expected: Hello) -> None:
    assert completeness(data) is expected


async def test_overlong_first_message_closes_the_connection(contexts: Contexts) -> None:
    listener = Listener(contexts)
    client = listener.client("192.0.2.1")
    client.send(record(131_000, b"x" * 100))
    assert (client.is_gone, client.tls.get_extra_info("ssl_object"), listener.handshakes.failures) == (True, None, 1)
    await settle()
    await listener.end()


async def test_a_handshake_has_a_length(contexts: Contexts) -> None:
    listener = Listener(contexts)
    client = listener.client("192.0.2.1", contexts.old)
    client.send(client.hello())
    await settle()
    certificate = b"\x16\x03\x03\x3f\xfc\x0b" + (100_000).to_bytes(3, "big") + b"x" * 16_376
    seen = []
    for _ in range(2):
        client.send(certificate)
        await settle()
        seen.append(client.is_gone)
    assert seen == [False, True]
    await listener.end()


async def test_data_after_the_handshake_is_read_in_its_turn(contexts: Contexts) -> None:
    listener = Listener(contexts)
    client = listener.client("192.0.2.1")
    client.send(client.hello())
    await settle()
    client.incoming.write(client.transport.written)
    client.transport.written.clear()
    client.object.do_handshake()
    ahead = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60_000
    client.object.write(ahead)
    data = client.outgoing.read()
    sent = 0
    while client.transport.reading and sent < len(data):
        client.send(data[sent : sent + 4096])
        sent += 4096
    assert sent < len(data), "more than a little waits in the kernel until then"
    await settle()
    while sent < len(data):
        client.send(data[sent : sent + 4096])
        sent += 4096
        await settle()
    client.incoming.write(client.transport.written)
    assert client.object.read(1 << 16).endswith(b"/x")
    assert client.transport.reading, "and then the kernel is asked for more"
    await listener.end()


async def test_little_is_read_at_once_from_an_unverified_client(contexts: Contexts) -> None:
    listener = Listener(contexts)
    for context, most in ((None, 16 << 10), (contexts.proxy, 64 << 10)):
        client = listener.client("192.0.2.1", context)
        assert len(client.tls.get_buffer(-1)) == 16 << 10
        await client.shake()
        assert len(client.tls.get_buffer(-1)) == most
    await listener.end()


def ask_for_keys(client: Client) -> bytes:
    library = ctypes.CDLL(_ssl.__file__)
    pointer = ctypes.c_void_p.from_address(id(client.object._sslobj) + 24)  # type: ignore[attr-defined]  # `SSL *` in CPython's object
    assert library.SSL_key_update(pointer, 1) == 1
    assert library.SSL_do_handshake(pointer) == 1
    return client.outgoing.read()


@pytest.mark.parametrize("at_once", [1, 100])
async def test_endless_key_updates_close_the_connection(contexts: Contexts, at_once: int) -> None:
    listener = Listener(contexts)
    client = listener.client("192.0.2.1", contexts.proxy)
    await client.shake()
    for _ in range(10):
        client.send(ask_for_keys(client))
    assert (await client.ask()).endswith(b"/x"), "now and then is no harm"
    for _ in range(1000 // at_once):
        client.send(b"".join(ask_for_keys(client) for _ in range(at_once)))
    await settle()
    assert (client.is_gone, len(client.transport.written) < 10_000) == (True, True)
    await listener.end()


async def test_waiting_client_does_not_lose_its_place_to_silent_ones(contexts: Contexts) -> None:
    listener = Listener(contexts, handshakes=Caps(10, 2))
    waiting, silent = listener.client("192.0.2.1"), listener.client("192.0.2.1")
    waiting.send(waiting.hello())
    listener.client("192.0.2.1")
    assert (waiting.is_gone, silent.is_gone) == (False, True)
    await settle()
    await listener.end()


async def test_closed_connection_keeps_no_timer(contexts: Contexts) -> None:
    listener = Listener(contexts, seconds=1000)
    client = listener.client("192.0.2.1")
    client.send(client.hello())
    client.tls.abort()
    await settle()
    assert client.is_gone
    assert client.tls._timer is None
    await listener.end()


async def test_failed_handshake_stops_no_other(contexts: Contexts) -> None:
    listener = Listener(contexts)
    broken, other = listener.client("192.0.2.1"), listener.client("192.0.2.2")
    hello = bytearray(broken.hello())
    hello[9:11] = b"\x00\x00"
    broken.send(bytes(hello[:40]) + b"\xff" * (len(hello) - 40))
    other.send(other.hello())
    await settle()
    other.finish()
    await settle()
    assert (broken.is_gone, listener.handshakes.failures) == (True, 1)
    assert (await other.ask()).endswith(b"/x")
    await listener.end()


async def test_a_handshake_has_its_time_however_it_drips(contexts: Contexts, tmp_path: Path) -> None:
    listener = Listener(contexts, seconds=0.2)
    client = listener.client("192.0.2.1")
    hello = client.hello()
    for at in range(40):
        client.send(hello[at : at + 1])
        await asyncio.sleep(0.01)
    assert client.is_gone
    await listener.end()
