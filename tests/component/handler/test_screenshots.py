from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec.screenshot import MAX_BYTES
from handler.pods.screenshots import AT_ONCE, Screenshots
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.serving import screenshots as launchers
from tests.fakes.launcher import run_directory
from tests.pictures import png

POD = "pod-1"


@asynccontextmanager
async def launcher(root: Path, take: Callable[[], Awaitable[bytes]], pod: str = POD) -> AsyncIterator[Screenshots]:
    directory = os.open(run_directory(root, pod), os.O_PATH)
    socket = Path(f"/proc/self/fd/{directory}/{layout.SCREENSHOT_SOCKET}")
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(launchers.Screenshots(take).serve(socket))
        while not socket.exists():
            await asyncio.sleep(0.01)
        yield Screenshots(root, seconds=5)
        serving.cancel()
    os.close(directory)


@asynccontextmanager
async def hostile(root: Path, content: bytes) -> AsyncIterator[None]:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(content)
        writer.close()

    directory = os.open(run_directory(root, POD), os.O_PATH)
    server = await asyncio.start_unix_server(answer, f"/proc/self/fd/{directory}/{layout.SCREENSHOT_SOCKET}")
    yield
    server.close()
    os.close(directory)


async def test_each_reader_gets_a_picture_taken_alone(tmp_path: Path) -> None:
    running = most = 0

    async def take() -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return png(720, 400)

    async with launcher(tmp_path, take) as handler, asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(handler.take(POD)) for _ in range(4)]
    assert {base64.b64decode(await each) for each in readers} == {png(720, 400)}
    assert most == 1


async def test_reason_of_a_refusal_is_passed_on(tmp_path: Path) -> None:
    async def take() -> bytes:
        raise RequestRefused("Conflict", "no screens to take a screenshot from")

    async with launcher(tmp_path, take) as handler:
        with pytest.raises(errors.Conflict, match="no screens to take a screenshot from"):
            await handler.take(POD)


async def test_older_launcher_and_hostile_ones_are_errors(tmp_path: Path) -> None:
    run_directory(tmp_path, POD)
    handler = Screenshots(tmp_path, seconds=1)
    with pytest.raises(errors.BadRequest, match="start the machine again"):
        await handler.take(POD)
    async with hostile(tmp_path, b"\x1b[2J" + b"x" * 2000):
        with pytest.raises(errors.Conflict) as refused:
            await handler.take(POD)
        assert "\x1b" not in refused.value.message
        assert len(refused.value.message) <= 512


async def test_endless_picture_is_cut_at_its_limit(tmp_path: Path) -> None:
    async with hostile(tmp_path, png(1, 1) + bytes(8 << 20)):
        text = await Screenshots(tmp_path, seconds=5).take(POD)
    assert len(text) < (MAX_BYTES + (1 << 17)) * 4 / 3


async def test_launcher_without_an_answer_times_out(tmp_path: Path) -> None:
    async def take() -> bytes:
        await asyncio.sleep(60)
        return b""

    async with launcher(tmp_path, take):
        with pytest.raises(errors.Timeout):
            await Screenshots(tmp_path, seconds=0.2).take(POD)


async def test_silent_launcher_takes_one_turn_of_its_node(tmp_path: Path) -> None:
    async def never() -> bytes:
        await asyncio.sleep(60)
        return b""

    async def at_once() -> bytes:
        return png(1, 1)

    async with launcher(tmp_path, never) as handler, launcher(tmp_path, at_once, "pod-2"), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(handler.take(POD)) for _ in range(AT_ONCE)]
        await asyncio.sleep(0)
        assert base64.b64decode(await handler.take("pod-2")) == png(1, 1)
        for each in waiting:
            each.cancel()
