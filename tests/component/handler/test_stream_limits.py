from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from socket import SO_RCVBUF, SO_SNDBUF, SOL_SOCKET

import aiohttp
import pytest

from apiserver.apis.virt.places import layout, streams
from handler.streams import pipe
from handler.streams.limits import Limits
from handler.streams.server import Target
from tests.component.handler.test_streams import Scene
from tests.fakes.launcher import run_directory

LIMITS = Limits(max_streams=6, max_streams_per_machine=4, max_streams_per_machine_and_user=2)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path, LIMITS)
    async with made.running():
        yield made


@asynccontextmanager
async def console(scene: Scene, holder: str, uid: str = "uid-1", stream: streams.Stream = "console") -> AsyncIterator[None]:
    async with (
        scene.session() as session,
        session.ws_connect(
            scene.url(uid, stream),
            protocols=(streams.SUBPROTOCOL,),
            server_hostname="n.virt-handler",
            headers={streams.HOLDER_HEADER: holder},
        ) as socket,
    ):
        assert await socket.receive_bytes() == b"login: "
        yield


async def refused(scene: Scene, holder: str, uid: str = "uid-1", stream: streams.Stream = "console") -> str:
    with pytest.raises(aiohttp.WSServerHandshakeError) as failed:
        async with console(scene, holder, uid, stream):
            pass
    assert failed.value.status == 429
    assert failed.value.headers is not None
    assert failed.value.headers["Retry-After"] == "5"
    return str((await scene.refused(scene.url(uid, stream)))["message"]) if not holder else ""


async def nobody_left(scene: Scene) -> None:
    async with asyncio.timeout(30):
        while scene.server.count:
            await asyncio.sleep(0.01)


async def test_streams_are_limited_per_machine_user_and_node(scene: Scene) -> None:
    scene.targets["uid-2"] = Target("pod-1")
    async with AsyncExitStack() as held:
        for _ in range(2):
            await held.enter_async_context(console(scene, "alice"))
        await refused(scene, "alice")
        for _ in range(2):
            await held.enter_async_context(console(scene, "bob"))
        await refused(scene, "carol")
        assert "4 to console of virtual machine default/testvm are open, and 4 is the limit" in await refused(scene, "")
        await held.enter_async_context(console(scene, "alice", "uid-2"))
        await held.enter_async_context(console(scene, "carol", "uid-2"))
        assert scene.server.count == 6
        assert "6 are open on its node, and 6 is the limit" in await refused(scene, "", "uid-2")
    await nobody_left(scene)
    async with console(scene, "alice"), console(scene, "alice"):
        assert scene.server.count == 2


async def test_displays_are_counted_apart_from_consoles(scene: Scene) -> None:
    directory = os.open(run_directory(scene.root, "pod-1"), os.O_PATH)
    display = await asyncio.start_unix_server(scene.guest.serve, f"/proc/self/fd/{directory}/{layout.VNC_SOCKET}")
    try:
        async with AsyncExitStack() as held:
            for _ in range(2):
                await held.enter_async_context(console(scene, "alice"))
                await held.enter_async_context(console(scene, "alice", stream="vnc"))
            await refused(scene, "alice")
            await refused(scene, "alice", stream="vnc")
    finally:
        display.close()
        os.close(directory)


async def test_streams_without_a_holder_share_no_limit(scene: Scene) -> None:
    """An older virt-api during an upgrade names no user."""
    async with AsyncExitStack() as held:
        for _ in range(4):
            await held.enter_async_context(console(scene, ""))


async def test_a_guest_that_is_not_there_costs_no_place(scene: Scene) -> None:
    for _ in range(8):
        assert (await scene.refused(scene.url(stream="vnc")))["code"] == 400
    assert scene.server.count == 0


@pytest.mark.parametrize("message", [b"x" * pipe.MAX_MESSAGE_BYTES, b"x" * 1000], ids=["long messages", "lines"])
async def test_messages_for_a_stalled_guest_are_bounded_in_bytes(scene: Scene, message: bytes) -> None:
    async with scene.console() as socket:
        await socket.receive_bytes()
        guest = scene.guest.writers[0]
        guest.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it

        async def flood() -> None:
            async with asyncio.timeout(3):
                for _ in range((64 << 20) // max(len(message), 64)):
                    await socket.send_bytes(message)
                    await asyncio.sleep(0)

        with pytest.raises(TimeoutError):
            await flood()
        (served,) = scene.server._open
        queue = served._reader
        assert queue is not None
        waiting = sum(len(each.data) + sys.getsizeof(each) for each, _ in queue._buffer)
        assert 0 < waiting <= 640 << 10
        guest.transport.abort()


async def test_a_message_that_is_too_long_ends_the_stream_with_1009(scene: Scene) -> None:
    async with scene.console() as socket:
        await socket.receive_bytes()
        await socket.send_bytes(b"x" * (pipe.MAX_MESSAGE_BYTES + 1))
        while (message := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
            pass
    assert message.data == 1009


async def test_no_compression_is_agreed_on(scene: Scene) -> None:
    async with (
        scene.session() as session,
        session.ws_connect(scene.url(), protocols=(streams.SUBPROTOCOL,), server_hostname="n.virt-handler", compress=15) as socket,
    ):
        assert socket.compress == 0


async def test_kernel_buffers_of_a_stream_are_bounded(scene: Scene) -> None:
    async with scene.console() as socket:
        await socket.receive_bytes()
        (served,) = scene.server._open
        assert served._req is not None
        assert served._req.transport is not None
        link = served._req.transport.get_extra_info("socket")
        for option in (SO_RCVBUF, SO_SNDBUF):
            assert link.getsockopt(SOL_SOCKET, option) <= 2 * pipe.CHUNK_BYTES
        assert served._req.transport.get_write_buffer_limits()[1] <= pipe.CHUNK_BYTES
