from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from launcher.main.decisions.refusal import RequestRefused
from launcher.main.serving import wire
from launcher.main.serving.wire import Server
from launcher.protocol import codec, messages
from tests.own_time import promptly


class Life:
    def __init__(self) -> None:
        self.status = messages.Status(0)
        self.handled: list[messages.Request] = []
        self.gate = asyncio.Event()
        self.song = "la\n"

    async def sing(self) -> str:
        if not self.song:
            raise RequestRefused("Conflict", "no voice")
        return self.song

    async def handle(self, request: messages.Request) -> None:
        match request:
            case messages.Suspend():
                raise RequestRefused("Conflict", "no guest")
            case messages.Resume():
                raise RuntimeError("a bug")
            case messages.Shutdown():
                raise RequestRefused("NotReady", "no image", ("data",))
            case messages.Sync():
                await self.gate.wait()
            case _:
                pass
        self.handled.append(request)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.receiver = codec.replies()
        self.received: list[messages.FromLauncher] = []

    def send(self, number: int, request: messages.Request) -> None:
        self.writer.write(codec.encode(messages.Call(number, request)))

    async def next(self) -> messages.FromLauncher:
        async with asyncio.timeout(30):
            while not self.received:
                data = await self.reader.read(65536)
                if not data:
                    raise EOFError
                self.received += self.receiver.receive(data)
        return self.received.pop(0)


class Serving:
    def __init__(self, life: Life, server: Server, path: Path) -> None:
        self.life, self.server, self.path = life, server, path

    def change(self) -> None:
        self.life.status = dataclasses.replace(self.life.status, revision=self.life.status.revision + 1)
        self.server.status_changed()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with asyncio.timeout(30):
            while not self.path.exists():
                await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_unix_connection(self.path)
        try:
            client = Client(reader, writer)
            assert isinstance(await client.next(), messages.Hello)
            yield client
        finally:
            writer.close()


@pytest.fixture
def send_seconds() -> float:
    return wire.SEND_SECONDS


@pytest.fixture
async def serving(tmp_path: Path, send_seconds: float) -> AsyncIterator[Serving]:
    life = Life()
    server = Server("1.2.3", lambda: life.status, life.handle, {"song": life.sing}, send_seconds=send_seconds)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.run(tmp_path / "s"))
        yield Serving(life, server, tmp_path / "s")
        life.gate.set()
        task.cancel()
    await asyncio.sleep(0.01)


async def test_the_greeting_has_version_and_status(serving: Serving) -> None:
    serving.change()
    async with serving.client():
        pass
    reader, writer = await asyncio.open_unix_connection(serving.path)
    hello = codec.replies().receive(await reader.readline())[0]
    writer.close()
    actions, operations = (
        ("Import", "PauseForMigration", "SetPassword", "Execute", "AttachDisk", "DetachDisk", "AttachInterface", "DetachInterface"),
        ("Reset", "Resume", "SoftReboot", "InjectNMI", "SendKey", "Suspend", "SuspendToNodeDisk", "Freeze", "Thaw"),
    )
    assert hello == messages.Hello(messages.PROTOCOL, "1.2.3", messages.Status(1), ("song",), actions, operations)


async def test_answers_carry_the_id_and_may_overtake_each_other(serving: Serving) -> None:
    machine = messages.Machine("a", "b", "c", {}, "qemu")
    async with serving.client() as client:
        client.send(7, messages.Sync(machine))
        client.send(8, messages.AbortMigration("m"))
        assert await client.next() == messages.Reply(8, messages.Status(0))
        serving.life.gate.set()
        assert await client.next() == messages.Reply(7, messages.Status(0))


async def test_refusals_and_faults_are_answers(serving: Serving) -> None:
    async with serving.client() as client:
        client.send(1, messages.Suspend())
        assert await client.next() == messages.Refusal(1, "Conflict", "no guest", messages.Status(0))
        client.send(2, messages.Resume())
        answer = await client.next()
        assert isinstance(answer, messages.Refusal)
        assert answer.reason == "Failed"
        client.send(3, messages.Shutdown(1))
        assert await client.next() == messages.Refusal(3, "NotReady", "no image", messages.Status(0), ("data",))


async def test_read_is_answered_or_refused_and_the_connection_stays(serving: Serving) -> None:
    async with serving.client() as client:
        client.send(1, messages.Read("song"))
        assert await client.next() == messages.Content(1, "la\n")
        client.send(2, messages.Read("dance"))
        assert await client.next() == messages.Refusal(2, "Invalid", "this virt-launcher does not provide 'dance'", messages.Status(0))
        serving.life.song = ""
        client.send(3, messages.Read("song"))
        assert await client.next() == messages.Refusal(3, "Conflict", "no voice", messages.Status(0))
        serving.life.song = '"' * (codec.MAX_CONTENT_BYTES // 2)
        client.send(4, messages.Read("song"))
        answer = await client.next()
        assert isinstance(answer, messages.Refusal)
        assert (answer.reason, str(codec.MAX_CONTENT_BYTES) in answer.message) == ("Failed", True)
        serving.life.song = "x" * (codec.MAX_CONTENT_BYTES - 2)
        client.send(5, messages.Read("song"))
        assert await client.next() == messages.Content(5, serving.life.song)


async def test_changes_reach_every_client_and_the_newest_is_the_last(serving: Serving) -> None:
    async with serving.client() as first, serving.client() as second:
        for _ in range(100):
            serving.change()
        for client in (first, second):
            message = await client.next()
            while not isinstance(message, messages.StatusChanged) or message.status.revision < 100:
                message = await client.next()


async def test_a_request_goes_on_when_its_client_hangs_up(serving: Serving) -> None:
    machine = messages.Machine("a", "b", "c", {}, "qemu")
    async with serving.client() as client:
        client.send(1, messages.Sync(machine))
        client.send(2, messages.AbortMigration("m"))
        await client.next()
    serving.life.gate.set()
    async with serving.client() as client, asyncio.timeout(30):
        while messages.Sync(machine) not in serving.life.handled:
            await asyncio.sleep(0.01)


async def test_nonsense_ends_the_connection_and_nothing_else(serving: Serving) -> None:
    async with serving.client() as good, serving.client() as bad:
        bad.writer.write(b"nonsense\n")
        with pytest.raises(EOFError):
            await bad.next()
        good.send(1, messages.AbortMigration("m"))
        assert isinstance(await good.next(), messages.Reply)


async def test_too_many_connections_cost_the_oldest(serving: Serving) -> None:
    async with serving.client() as oldest:
        writers = []
        for _ in range(wire.MAX_CONNECTIONS):
            reader, writer = await asyncio.open_unix_connection(serving.path)
            await reader.readline()
            writers.append(writer)
        with pytest.raises((EOFError, ConnectionResetError)):
            await oldest.next()
        for writer in writers:
            writer.close()


@pytest.mark.parametrize("send_seconds", [0.1])
async def test_a_client_that_does_not_read_is_left(serving: Serving) -> None:
    serving.life.status = messages.Status(0, not_migratable="x" * 200_000)
    async with serving.client() as client:
        for _ in range(20):
            serving.change()
            await asyncio.sleep(0.03)
        await promptly(lambda: not serving.server._connections, 5)
        client.writer.transport.abort()


async def test_flush_waits_until_clients_have_the_last_status(serving: Serving) -> None:
    async with serving.client() as client:
        serving.change()
        async with asyncio.timeout(30):
            await serving.server.flush()
        message = await client.next()
        assert isinstance(message, messages.StatusChanged)
        assert message.status.revision == 1
    async with asyncio.timeout(30):
        await serving.server.flush()


async def test_server_is_deserted_while_no_client_is_connected(serving: Serving) -> None:
    async with asyncio.timeout(30):
        await serving.server.deserted()
    async with serving.client(), asyncio.TaskGroup() as group:
        waiting = group.create_task(serving.server.deserted())
        async with serving.client():
            pass
        async with serving.client() as client:
            client.send(1, messages.AbortMigration("m"))
            assert isinstance(await client.next(), messages.Reply)
        assert not waiting.done()
        waiting.cancel()
    async with asyncio.timeout(30):
        await serving.server.deserted()
