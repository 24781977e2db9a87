from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apiserver.endpoints.http.caps import Caps
from apiserver.endpoints.http.handshakes import Handshakes, Limits
from apiserver.endpoints.http.messages import Request, Response
from apiserver.endpoints.http.server import Server
from apiserver.endpoints.http.tls import Tls
from certs.issuing import Profile, issue, new_authority
from tests.unit.apiserver.endpoints.http.transports import QUICK, FakeTransport, settle

HOUR = timedelta(hours=1)
GET = b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n"
LARGE = b"x" * 1_000_000


class Contexts:
    """A server's context, and clients' contexts that trust it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = authority = new_authority("test", HOUR, datetime.now(UTC))
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(*self._issued(Profile("localhost", dns_names=("localhost",), server=True)))
        self.server.verify_mode = ssl.CERT_OPTIONAL
        self.server.load_verify_locations(cadata=authority.certificate.decode())
        self.client, self.proxy, self.node, self.old = (ssl.create_default_context(cadata=authority.certificate.decode()) for _ in range(4))
        self.proxy.load_cert_chain(*self._issued(Profile("proxy", client=True)))
        self.node.load_cert_chain(*self._issued(Profile("node", client=True)))
        self.old.maximum_version = ssl.TLSVersion.TLSv1_2

    def _issued(self, profile: Profile) -> tuple[Path, Path]:
        pair = issue(self._authority, profile, HOUR, datetime.now(UTC))
        certificate, key = self._directory / f"{profile.common_name}.crt", self._directory / f"{profile.common_name}.key"
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        return certificate, key


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return Contexts(tmp_path_factory.mktemp("tls"))


async def answer(request: Request) -> Response:
    if request.path == "/fails":
        raise RuntimeError("on purpose")
    return Response(body=LARGE if request.path == "/large" else request.path.encode())


class Peer:
    def __init__(self, contexts: Contexts, size: int = 1 << 20, seconds: float = 5, beside: Peer | None = None) -> None:
        self.size = size
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = contexts.client.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.server: Server = beside.server if beside else Server(answer, QUICK)
        limits = Limits(seconds, *[Caps(64, 64)] * 3)
        self.handshakes: Handshakes = beside.handshakes if beside else Handshakes(lambda: contexts.server, self.server, limits)
        self.transport = Socket()
        self.tls = self.handshakes()
        self.transport.tls = self.tls
        self.tls.connection_made(self.transport)

    def arrive(self, data: bytes) -> None:
        for start in range(0, len(data), self.size):
            piece = data[start : start + self.size]
            while piece and not self.transport.closed:
                place = self.tls.get_buffer(-1)
                count = min(len(piece), len(place))
                place[:count] = piece[:count]
                self.tls.buffer_updated(count)
                piece = piece[count:]

    async def exchange(self) -> None:
        self.arrive(self.outgoing.read())
        await settle()
        self.incoming.write(self.transport.written)
        self.transport.written.clear()

    async def shake(self) -> None:
        for _ in range(5):
            try:
                self.object.do_handshake()
            except ssl.SSLWantReadError:
                await self.exchange()
            else:
                break
        await self.exchange()
        assert self.object.version() == "TLSv1.3"

    async def ask(self, path: bytes) -> bytes:
        self.object.write(GET % path)
        return await self.hear()

    async def hear(self) -> bytes:
        """Return the server's decrypted bytes until it sends no more; ``<goodbye>`` stands for the end of TLS."""
        said = b""
        for _ in range(3):
            await self.exchange()
            await settle()
        await self.exchange()
        while True:
            try:
                data = self.object.read(1 << 16)
            except ssl.SSLWantReadError:
                return said
            except ssl.SSLZeroReturnError:
                return said + b"<goodbye>"
            if not data:
                return said + b"<goodbye>"
            said += data


class Socket(FakeTransport):
    tls: Tls

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.written += data

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.tls.connection_lost, None)

    abort = close


@pytest.fixture(params=[1 << 20, 1000, 7])
async def peer(contexts: Contexts, request: pytest.FixtureRequest) -> Peer:
    made = Peer(contexts, request.param)
    await made.shake()
    return made


async def end(peer: Peer) -> None:
    assert not peer.handshakes.outgoing.pending, "the next connection would send it"
    await peer.server.shutdown(0)
    peer.handshakes.abort()
    await settle()
    assert (len(peer.server), len(peer.handshakes)) == (0, 0)


async def test_requests_are_answered_however_their_bytes_arrive(peer: Peer) -> None:
    for path in (b"a", b"b"):
        assert (await peer.ask(path)).endswith(b"\r\n\r\n/" + path)
    assert (await peer.ask(b"large")).endswith(b"\r\n\r\n" + LARGE)
    peer.object.write(GET % b"c" + GET % b"d")
    said = await peer.hear()
    assert said.index(b"\r\n\r\n/c") < said.index(b"\r\n\r\n/d")
    await end(peer)


async def test_the_connection_knows_the_handshake_and_the_address(contexts: Contexts) -> None:
    peer = Peer(contexts)
    assert len(peer.handshakes) == 1
    await peer.shake()
    assert (len(peer.server), len(peer.handshakes)) == (1, 0)
    assert isinstance(peer.tls.get_extra_info("ssl_object"), ssl.SSLObject)
    assert peer.tls.get_extra_info("peername") == ("192.0.2.1", 4711)
    assert peer.tls.get_extra_info("else", 1) == 1
    await end(peer)
    assert peer.tls.get_extra_info("peername", "gone") == "gone"


async def test_the_server_says_goodbye(contexts: Contexts) -> None:
    peer = Peer(contexts)
    await peer.shake()
    peer.object.write(b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    said = await peer.hear()
    assert said.endswith(b"\r\n\r\n/x<goodbye>")
    assert peer.transport.closed
    peer.tls.write(b"late")
    peer.tls.close()
    assert not peer.transport.written
    await end(peer)


async def test_a_client_that_says_goodbye_is_let_go(contexts: Contexts) -> None:
    peer = Peer(contexts)
    await peer.shake()
    await peer.ask(b"x")
    with pytest.raises(ssl.SSLWantReadError):
        peer.object.unwrap()
    await peer.exchange()
    await settle()
    assert (peer.transport.closed, len(peer.server)) == (True, 0)
    await end(peer)


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x80" * 100])
async def test_non_tls_input_is_refused(contexts: Contexts, sent: bytes) -> None:
    peer = Peer(contexts)
    peer.arrive(sent)
    await settle()
    assert (peer.transport.closed, len(peer.server)) == (True, 0)
    await end(peer)


async def test_a_record_that_was_tampered_with_ends_the_connection(contexts: Contexts) -> None:
    peer = Peer(contexts)
    await peer.shake()
    peer.object.write(GET % b"x")
    record = bytearray(peer.outgoing.read())
    record[-1] ^= 1
    peer.arrive(bytes(record))
    await settle()
    assert (peer.transport.closed, len(peer.server)) == (True, 0)
    peer.incoming.write(peer.transport.written)
    with pytest.raises(ssl.SSLError, match="ALERT_BAD_RECORD_MAC"):
        peer.object.read(1)
    await end(peer)


async def test_last_output_of_a_connection_reaches_no_other(contexts: Contexts) -> None:
    broken = Peer(contexts)
    other, gone, strange = (Peer(contexts, beside=broken) for _ in range(3))
    for each in (broken, other, gone):
        await each.shake()
    broken.object.write(GET % b"x")
    record = bytearray(broken.outgoing.read())
    record[-1] ^= 1
    broken.arrive(bytes(record))
    assert (await other.ask(b"first")).endswith(b"\r\n\r\n/first")
    gone.transport.close()
    await settle()
    gone.tls.write(b"nobody reads this")
    gone.tls.close()
    strange.arrive(b"GET / HTTP/1.1\r\n\r\n")
    assert (await other.ask(b"name")).endswith(b"\r\n\r\n/name")
    await end(other)


async def test_a_client_that_does_not_finish_its_handshake_is_let_go(contexts: Contexts) -> None:
    peer = Peer(contexts, seconds=0.05)
    with pytest.raises(ssl.SSLWantReadError):
        peer.object.do_handshake()
    peer.arrive(peer.outgoing.read()[:20])
    await asyncio.sleep(0.1)
    assert peer.transport.closed
    await end(peer)


async def test_a_server_that_stops_lets_go_of_handshakes_under_way(contexts: Contexts) -> None:
    peer = Peer(contexts)
    await end(peer)
    assert peer.transport.closed


async def test_backpressure_is_that_of_the_socket(contexts: Contexts) -> None:
    peer = Peer(contexts)
    peer.tls.pause_writing()
    peer.tls.resume_writing()
    await peer.shake()
    peer.object.write(GET % b"large")
    peer.tls.pause_writing()
    peer.transport.full = True
    peer.arrive(peer.outgoing.read())
    await settle()
    written = len(peer.transport.written)
    assert written < len(LARGE) / 2
    assert peer.tls.get_write_buffer_size() == written
    peer.transport.full = False
    peer.tls.resume_writing()
    await settle()
    assert len(peer.transport.written) > len(LARGE)
    reading = []
    for each in (peer.tls.pause_reading, peer.tls.resume_reading):
        each()
        reading.append(peer.transport.reading)
    assert reading == [False, True]
    await end(peer)


async def test_a_client_that_is_gone_takes_its_request_along(contexts: Contexts) -> None:
    peer = Peer(contexts)
    await peer.shake()
    assert not peer.tls.eof_received()
    peer.transport.close()
    await settle()
    assert (len(peer.server), peer.tls.is_closing(), peer.tls.get_write_buffer_size()) == (0, True, 0)
    for late in (peer.tls.close, peer.tls.abort, peer.tls.pause_reading, peer.tls.resume_reading):
        late()
    await end(peer)
