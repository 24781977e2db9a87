from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from apiserver.apis.virt.places import layout
from launcher.main.decisions.times import Times
from launcher.main.disks.import_plans import Directories
from launcher.main.filling import PLACES, Filling
from launcher.protocol import codec, messages
from tests.unit.launcher.main.test_imports import SAYS_DONE, a_machine

HANGS: Final = "import os, time; open('PID', 'w').write(str(os.getpid())); time.sleep(600)"


class Pod:
    def __init__(self, directory: Path, program: str) -> None:
        self.directory = directory
        (directory / "program.py").write_text(program.replace("PID", str(directory / "pid")))
        places = Directories(directory / "claims", directory / "devices", directory / "secrets", directory / "authorities")
        command = (sys.executable, "-S", str(directory / "program.py"))
        self.filling = Filling(places, command, Times(import_retry=(0.01, 0.01)))

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with asyncio.timeout(20):
            while not (self.directory / layout.LAUNCHER_SOCKET).exists():
                await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_unix_connection(self.directory / layout.LAUNCHER_SOCKET)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()

    async def importer(self) -> int:
        async with asyncio.timeout(20):
            while not (text := (self.directory / "pid").read_text() if (self.directory / "pid").exists() else ""):
                await asyncio.sleep(0.01)
        return int(text)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._receiver = reader, writer, codec.replies()

    async def call(self, request: messages.Request) -> Any:
        self._writer.write(codec.encode(messages.Call(1, request)))
        while True:
            for message in self._receiver.receive(await self._reader.read(1 << 16)):
                if isinstance(message, messages.Reply | messages.Refusal):
                    return message


def lives(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().split()[2] != "Z"


async def test_import_ends_when_virt_handler_disconnects(tmp_path: Path) -> None:
    pod = Pod(tmp_path, HANGS)
    async with asyncio.timeout(40), asyncio.TaskGroup() as tasks:
        run = tasks.create_task(pod.filling.run(tmp_path))
        async with pod.client() as client:
            answer = await client.call(messages.Import(a_machine("attachment")))
            assert (answer.reason, [each.disk for each in answer.status.imports]) == ("NotReady", ["attachment"])
            pid = await pod.importer()
            assert not run.done()
        assert await run == 1
        while lives(pid):
            await asyncio.sleep(0.01)


async def test_pod_with_its_image_stays_without_virt_handler(tmp_path: Path) -> None:
    pod = Pod(tmp_path, SAYS_DONE)
    async with asyncio.timeout(40), asyncio.TaskGroup() as tasks:
        run = tasks.create_task(pod.filling.run(tmp_path))
        async with pod.client() as client:
            while isinstance(await client.call(messages.Import(a_machine("attachment"))), messages.Refusal):
                await asyncio.sleep(0.01)
            assert (await client.call(messages.Shutdown(1.0))).reason == "Conflict"
        await asyncio.sleep(0.1)
        assert not run.done()
        reader, writer = await asyncio.open_unix_connection(tmp_path / layout.ATTACHMENT_SOCKET)
        assert await reader.read() == b""
        writer.close()
        run.cancel()


@pytest.mark.parametrize(
    ("place", "path"),
    [
        (PLACES.disks, layout.ATTACHMENT_DIRECTORY),
        (PLACES.devices, layout.ATTACHMENT_DEVICE),
        (PLACES.secrets, f"{layout.IMPORT_SECRETS_DIRECTORY}/attachment"),
        (PLACES.authorities, f"{layout.IMPORT_AUTHORITIES_DIRECTORY}/attachment"),
    ],
)
def test_places_are_those_of_the_pod(place: Path, path: str) -> None:
    assert os.fspath(place / layout.ATTACHMENT_VOLUME) == path
