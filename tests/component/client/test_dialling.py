from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apiserver.client import dialling
from apiserver.client.connections import Connections, Origin
from apiserver.client.transport import Disconnected, Unreachable
from certs.files import write_file
from certs.issuing import Profile, issue, new_authority
from tests.component.client.peers import OK, Peer, Server, answering, ask, send, silent, world
from tests.own_time import within

HOUR = timedelta(hours=1)


async def test_a_literal_of_ipv6_is_dialled() -> None:
    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Peer(reader, writer).hear()
        writer.write(OK)
        writer.close()

    server = await asyncio.start_server(act, "::1", 0)
    async with server, Connections(keep_seconds=1) as connections:
        assert await ask(connections, Origin("::1", server.sockets[0].getsockname()[1])) == b"ok"


async def test_unreachable_hosts_raise_an_error_and_are_forgotten() -> None:
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


async def test_resolver_may_dial_another_address() -> None:
    server = Server(answering(OK))
    async with server.serving(), Connections(keep_seconds=1, resolve={"hooks.acc.svc": "127.0.0.1"}.__getitem__) as connections:
        assert await ask(connections, Origin("hooks.acc.svc", server.port)) == b"ok"
        assert b"Host: hooks.acc.svc:" in server.peers[0].requests[0]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
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
        with pytest.raises(Disconnected):
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
async def test_cancelled_or_unanswered_handshake_leaves_nothing(tls: tuple[ssl.SSLContext, str], seconds: float) -> None:
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

    assert (await within(dialling.STAGGER_SECONDS, dialling.first(["refused", "good", "late"], dial))).address == "good"
    assert begun == ["refused", "good"]
    assert (await dialling.first(["stuck", "good"], dial)).address == "good"
    with pytest.raises(ConnectionRefusedError):
        await dialling.first(["refused", "refused"], dial)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(dialling.STAGGER_SECONDS * 1.5):
            await dialling.first(["stuck", "stuck"], dial)
    assert len(made) == 2


def test_addresses_of_both_families_take_turns() -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    found = [(six, 1, 6, "", ("2001:db8::1", 1, 0, 0)), (six, 1, 6, "", ("2001:db8::2", 1, 0, 0)), (four, 1, 6, "", ("192.0.2.1", 1))]

    assert dialling.by_turns(found) == ["2001:db8::1", "192.0.2.1", "2001:db8::2"]


async def test_a_literal_is_its_own_address_and_a_name_is_asked_for() -> None:
    assert await dialling.addresses("192.0.2.1", 1) == ["192.0.2.1"]
    assert "127.0.0.1" in await dialling.addresses("localhost", 1)
