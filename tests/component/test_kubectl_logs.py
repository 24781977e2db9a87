from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.places import streams
from apiserver.kubectl import logs
from apiserver.kubectl.access import Access
from apiserver.kubectl.logs import Settings
from apiserver.kubectl.messages import Failure
from tests.fakes.streams import FakeStreams


@pytest.fixture
async def server() -> FakeStreams:
    found = FakeStreams()
    found.scrollback = b"one\r\n\x1b[1mtwo\r\nlogin: "
    return found


@pytest.fixture
async def way(server: FakeStreams) -> AsyncIterator[Access]:
    async with server.serving() as url:
        yield Access(url, "default")


async def printed(way: Access, settings: Settings) -> tuple[int, bytes]:
    async def load() -> Access:
        return way

    read, write = os.pipe()
    try:
        return await logs.show(settings, load, stdout=write, pause_seconds=0.2), os.read(read, 1 << 16)
    finally:
        os.close(read)
        os.close(write)


async def test_output_is_printed_byte_by_byte_to_a_pipe(server: FakeStreams, way: Access) -> None:
    assert await printed(way, Settings("testvm")) == (0, server.scrollback)
    assert await printed(way, Settings("testvm", tail=2, port=1)) == (0, b"\x1b[1mtwo\r\nlogin: ")
    assert server.queries == [{"port": "0", "follow": "false"}, {"port": "1", "follow": "false"}]


@pytest.mark.parametrize(("printed_before", "tail", "is_told"), [(b"", None, True), (b"one\n", None, False), (b"one\n", 0, False)])
async def test_a_silent_guest_is_told_with_the_way_to_its_screen(
    server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str], printed_before: bytes, tail: int | None, *, is_told: bool
) -> None:
    server.scrollback = printed_before

    async def load() -> Access:
        return way

    assert await logs.show(Settings("testvm", tail=tail, port=1), load, stdout=os.open(os.devnull, os.O_WRONLY)) == 0
    told = logs.EMPTY.format(port=1, name="testvm") + "\n"
    assert capsys.readouterr().err == (told if is_told else "")


async def test_new_output_is_printed_until_the_guest_is_off(server: FakeStreams, way: Access) -> None:
    async def print_more() -> None:
        while not server.open:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        for each in tuple(server.open):
            await each.send_bytes(b"new\r\n")
        await server.close(streams.CLOSE_NORMAL)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(print_more())
        assert await printed(way, Settings("testvm", follow=True, tail=1)) == (0, b"login: new\r\n")


async def test_log_that_is_refused_or_cut_off_is_a_failure(server: FakeStreams, way: Access) -> None:
    server.refusals = [errors.Forbidden("you may not")]
    with pytest.raises(Failure, match="open the log of virtual machine default/testvm: you may not"):
        await printed(way, Settings("testvm"))

    async def cut() -> None:
        while not server.open:
            await asyncio.sleep(0.01)
        await server.close(streams.CLOSE_GOING_AWAY, "the guest moved")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(cut())
        with pytest.raises(Failure, match="error: the log of testvm was cut off: the guest moved"):
            await printed(way, Settings("testvm", follow=True))
