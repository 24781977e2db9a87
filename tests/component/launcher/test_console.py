from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from apiserver.apis.virt.places.layout import CONSOLE_REPLAY_BYTES
from launcher.main.serving.console import MAX_VIEWERS, Console


class Guest:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.typed = b""
        self.writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        if self.writer is not None:
            self.writer.close()
        self.path.unlink(missing_ok=True)
        self._server = self.writer = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        while data := await reader.read(65536):
            self.typed += data

    async def prints(self, data: bytes) -> None:
        async with asyncio.timeout(30):
            while self.writer is None:
                await asyncio.sleep(0.005)
            self.writer.write(data)
            await self.writer.drain()


class Desk:
    def __init__(self, directory: Path, max_viewers: int) -> None:
        self.changes = 0
        self.guest = Guest(directory / "serial")
        self.console = Console(directory / "serial", self._changed, max_viewers)
        self.path = directory / "console"
        self.writers: list[asyncio.StreamWriter] = []

    def _changed(self) -> None:
        self.changes += 1

    async def viewer(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while not self.path.exists():
            await asyncio.sleep(0.005)
        reader, writer = await asyncio.open_unix_connection(self.path)
        self.writers.append(writer)
        count = len(self.writers)
        async with asyncio.timeout(30):
            while self.console.viewers < count:
                await asyncio.sleep(0.005)
        return reader, writer


@pytest.fixture
def max_viewers() -> int:
    return MAX_VIEWERS


@pytest.fixture
async def desk(tmp_path: Path, max_viewers: int) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path, max_viewers)
    await desk.guest.start()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part) for part in (desk.console.run(), desk.console.serve(desk.path))]
        yield desk
        for writer in desk.writers:
            writer.close()
        desk.guest.stop()
        for task in tasks:
            task.cancel()
    await asyncio.sleep(0.01)


async def read(reader: asyncio.StreamReader, text: bytes) -> bytes:
    async with asyncio.timeout(30):
        return await reader.readuntil(text)


async def test_console_connects_only_to_an_existing_guest(desk: Desk) -> None:
    await asyncio.sleep(0.05)
    assert not desk.console.connected.is_set()
    desk.console.attach()
    async with asyncio.timeout(30):
        await desk.console.connected.wait()


async def test_every_viewer_sees_all_output_and_late_ones_the_replay(desk: Desk) -> None:
    desk.console.attach()
    first, _writer = await desk.viewer()
    await desk.guest.prints(b"boot\nlogin:")
    assert await read(first, b"login:") == b"boot\nlogin:"
    late, _writer = await desk.viewer()
    assert await read(late, b"login:") == b"boot\nlogin:"
    await desk.guest.prints(b" root\n")
    assert await read(first, b"root\n") == await read(late, b"root\n") == b" root\n"
    assert desk.console.viewers == 2


async def test_input_of_every_viewer_reaches_the_guest(desk: Desk) -> None:
    desk.console.attach()
    await desk.guest.prints(b"")
    (_reader, one), (_reader, two) = await desk.viewer(), await desk.viewer()
    for writer, text in ((one, b"a"), (two, b"b"), (one, b"c")):
        writer.write(text)
        async with asyncio.timeout(30):
            while not desk.guest.typed.endswith(text):
                await asyncio.sleep(0.005)
    assert desk.guest.typed == b"abc"


async def test_viewers_stay_while_the_guest_is_replaced(desk: Desk) -> None:
    desk.console.attach()
    reader, writer = await desk.viewer()
    await desk.guest.prints(b"one\n")
    await read(reader, b"one\n")
    desk.guest.stop()
    async with asyncio.timeout(30):
        while desk.console.connected.is_set():
            await asyncio.sleep(0.005)
    writer.write(b"lost")
    await asyncio.sleep(0.02)
    await desk.guest.start()
    await desk.guest.prints(b"two\n")
    assert await read(reader, b"two\n") == b"two\n"
    assert desk.guest.typed == b""


async def test_stalled_viewer_is_disconnected_and_others_stay(desk: Desk) -> None:
    desk.console.attach()
    _idle, idle_writer = await desk.viewer()
    idle_writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it
    good, _writer = await desk.viewer()
    chunk = b"x" * 65535 + b"\n"
    for _ in range(40):
        await desk.guest.prints(chunk)
        await read_exactly(good, len(chunk))
    assert desk.console.viewers == 1


async def read_exactly(reader: asyncio.StreamReader, count: int) -> None:
    async with asyncio.timeout(30):
        await reader.readexactly(count)


@pytest.mark.parametrize("max_viewers", [1])
async def test_more_viewers_than_allowed_are_turned_away(desk: Desk) -> None:
    await desk.viewer()
    reader, writer = await asyncio.open_unix_connection(desk.path)
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    writer.close()
    assert desk.console.viewers == 1


async def test_the_number_of_viewers_is_announced(desk: Desk) -> None:
    _reader, writer = await desk.viewer()
    assert desk.changes == 1
    writer.close()
    async with asyncio.timeout(30):
        while desk.changes < 2:
            await asyncio.sleep(0.005)
    assert desk.console.viewers == 0


async def log(tmp_path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    path = tmp_path / "log"
    while not path.exists():
        await asyncio.sleep(0.005)
    return await asyncio.open_unix_connection(path, limit=1 << 20)


async def test_log_is_longer_than_the_replay_and_ends_if_not_followed(desk: Desk, tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(60):
        serving = tasks.create_task(desk.console.serve_log(tmp_path / "log"))
        desk.console.attach()
        lines = b"".join(b"line %06d\n" % number for number in range(20_000))
        await desk.guest.prints(lines)
        reader, writer = await log(tmp_path)
        follower, typing = await log(tmp_path)
        assert await follower.readuntil(b"line 019999\n")
        writer.write_eof()
        kept = await reader.read()
        assert len(kept) > CONSOLE_REPLAY_BYTES
        assert lines.endswith(kept)
        typing.write(b"rm -rf /")
        await typing.drain()
        await desk.guest.prints(b"more\n")
        assert (await follower.readuntil(b"more\n")).endswith(b"more\n")
        assert desk.guest.typed == b""
        for each in (writer, typing):
            each.close()
        serving.cancel()


async def test_output_during_the_history_is_neither_lost_nor_repeated(desk: Desk, tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(60):
        serving = tasks.create_task(desk.console.serve_log(tmp_path / "log"))
        desk.console.attach()
        await desk.guest.prints(b"".join(b"%07d\n" % number for number in range(60_000)))
        viewer, _ = await desk.viewer()
        while await viewer.readline() != b"0059999\n":
            pass
        path = str(tmp_path / "log")
        reader, writer = await asyncio.open_unix_connection(path, limit=1 << 10)
        await asyncio.sleep(0.2)
        for number in range(60_000, 70_000, 1000):
            await desk.guest.prints(b"".join(b"%07d\n" % each for each in range(number, number + 1000)))
        while await viewer.readline() != b"0069999\n":
            pass
        first = int(await reader.readline())
        for expected in range(first + 1, 70_000):
            assert int(await reader.readline()) == expected
        writer.close()
        serving.cancel()
