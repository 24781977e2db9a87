from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.places import streams
from apiserver.apis.virt.places.streams import Forward
from apiserver.kubectl import portforward
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure
from tests.fakes.streams import FakeStreams

PATH = "/apis/kubevirt.io/v1alpha1/namespaces/default/virtualmachines/testvm/portforward"


@pytest.fixture
async def server() -> FakeStreams:
    return FakeStreams()


@pytest.fixture
async def way(server: FakeStreams) -> AsyncIterator[Access]:
    async with server.serving() as url:
        yield Access(url, "default")


@contextlib.asynccontextmanager
async def forwarded(way: Access, capsys: pytest.CaptureFixture[str], *ports: str) -> AsyncIterator[list[int]]:
    async def load() -> Access:
        return way

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(portforward.forward_all("testvm", load, [portforward.parse(each) for each in ports], "127.0.0.1"))
        said = ""
        async with asyncio.timeout(30):
            while said.count("->") < len(ports):
                await asyncio.sleep(0.01)
                said += capsys.readouterr().out
        yield [int(line.split(":")[1].split()[0]) for line in said.splitlines()]
        task.cancel()


async def test_each_connection_is_a_websocket_to_its_port(server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]) -> None:
    async with forwarded(way, capsys, ":22", ":80") as (ssh, http):
        for port in (ssh, http):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"HELLO"
            writer.write_eof()
            assert await reader.read() == b"OK"
            writer.close()
    assert [path for _, path, headers in server.requests if "Upgrade" in dict(headers)] == [f"{PATH}/22/tcp", f"{PATH}/80/tcp"]
    assert set(server.subprotocols) == {streams.SUBPROTOCOL}
    assert capsys.readouterr().out == f"Handling connection for {ssh}\nHandling connection for {http}\n"


async def test_each_sender_of_datagrams_has_a_websocket(server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]) -> None:
    loop = asyncio.get_running_loop()
    async with forwarded(way, capsys, "udp/:53") as (port,):
        with contextlib.ExitStack() as stack:
            senders = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2)]
            for each in senders:
                each.settimeout(0)
                each.connect(("127.0.0.1", port))
                for text in (b"one", b"two"):
                    await loop.sock_sendall(each, text)
            async with asyncio.timeout(30):
                assert [[await loop.sock_recv(each, 100) for _ in range(2)] for each in senders] == [[b"ONE", b"TWO"]] * 2
        assert len(server.subprotocols) == 2
    assert server.requests[-1][1] == f"{PATH}/53/udp"


async def test_refused_machine_ends_the_command_before_it_listens(
    server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]
) -> None:
    async def load() -> Access:
        return way

    server.refusals = [errors.BadRequest("it is not running")]
    assert await portforward.forward_all("testvm", load, [portforward.parse(":22")], "127.0.0.1") == 1
    assert capsys.readouterr() == (
        "",
        "Error from server (BadRequest): cannot forward a port of virtual machine default/testvm: it is not running\n",
    )
    assert not server.subprotocols


async def test_port_that_nothing_serves_closes_one_connection(server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]) -> None:
    async with forwarded(way, capsys, ":22") as (port,):
        server.refusals = [errors.BadRequest("TCP port 22 does not answer: Connection refused")]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        assert "open the TCP port 22 of virtual machine default/testvm: TCP port 22 does not answer" in capsys.readouterr().err
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"again")
        assert await reader.readexactly(5) == b"AGAIN"
        writer.close()


async def test_withdrawn_right_ends_the_command(server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]) -> None:
    async def load() -> Access:
        return way

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        command = tasks.create_task(portforward.forward_all("testvm", load, [portforward.parse(":22")], "127.0.0.1"))
        said = ""
        while "->" not in said:
            await asyncio.sleep(0.01)
            said += capsys.readouterr().out
        _, writer = await asyncio.open_connection("127.0.0.1", int(said.split(":")[1].split()[0]))
        while not server.open:
            await asyncio.sleep(0.01)
        await server.close(streams.CLOSE_POLICY_VIOLATION, "your right was withdrawn")
        assert await command == 1
        writer.close()
    assert "error: the TCP port 22 of testvm was closed: your right was withdrawn" in capsys.readouterr().err


async def test_standard_streams_carry_a_port_until_it_closes(server: FakeStreams, way: Access) -> None:
    async def load() -> Access:
        return way

    (stdin, typed), (shown, stdout) = os.pipe(), os.pipe()
    os.write(typed, b"hello")
    os.close(typed)
    async with asyncio.timeout(30):
        assert await portforward.on_standard_streams("testvm", load, Forward("tcp", 22), stdin=stdin, stdout=stdout) == 0
    assert os.read(shown, 100) == b"HELLOOK"
    server.refusals = [errors.NotFound("none")]
    with pytest.raises(
        Failure, match=r"Error from server \(NotFound\): cannot open the TCP port 22 of virtual machine default/testvm: none"
    ):
        await portforward.on_standard_streams("testvm", load, Forward("tcp", 22), stdin=stdin, stdout=stdout)
    for each in (stdin, shown, stdout):
        os.close(each)
