"""The bytes of a migration from one pod's socket to another's, over mTLS on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from apiserver.apis.virt import layout
from certs.reloading import ClientTls, ServerTls
from handler.pods import launcher, places
from handler.relays import copying, outgoing
from handler.relays.header import Header, Release
from handler.relays.incoming import Incoming
from handler.relays.outgoing import Outgoing
from tests.component.handler.tls import Authority
from tests.fakes.launcher import run_directory

SIZE = 3 << 20


class Scene:
    """A target node with a pod that echoes, and the certificates."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.authority = Authority(root / "certs")
        self.files = self.authority.issue("virt-handler")
        self.incoming = Incoming(ServerTls(self.files, clients=ssl.CERT_REQUIRED), host="127.0.0.1", port=0, kubelet=root)
        self.seen: list[str] = []
        self.released: list[bool] = []
        self.refusal: launcher.Disconnected | None = None
        self.echoing: set[asyncio.StreamWriter] = set()

    def relay(self) -> Outgoing:
        return Outgoing("mig-1", "source", f"127.0.0.1:{self.incoming.port}", ClientTls(self.files), self.root)

    async def release(self, paused: bool) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.released.append(paused)

    @asynccontextmanager
    async def target(self) -> AsyncIterator[None]:
        directory = run_directory(self.root, "target")
        (directory / "libvirt").mkdir()
        (directory / "migration").mkdir()
        handle = os.open(directory, os.O_PATH)
        async with contextlib.AsyncExitStack() as stack:
            for path in (layout.LIBVIRT_SOCKET, layout.MIGRATION_DATA_SOCKET):
                server = await asyncio.start_unix_server(self._echo(path), f"/proc/self/fd/{handle}/{path}")
                stack.callback(server.close)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            task = tasks.create_task(self.incoming.run())
            await self.incoming.ready.wait()
            yield
            task.cancel()
        await copying.drained(self.echoing)
        os.close(handle)

    def _echo(self, path: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.seen.append(path)
            self.echoing.add(writer)
            with contextlib.suppress(OSError):
                while data := await reader.read(1 << 16):
                    writer.write(data)
            self.echoing.discard(writer)
            writer.close()

        return serve

    async def dial(self, header: bytes, name: str = "virt-handler") -> bytes:
        """Connect by hand, send a header and a word, return what comes back."""
        context = ClientTls(self.authority.issue(name)).context
        reader, writer = await asyncio.open_connection("127.0.0.1", self.incoming.port, ssl=context, server_hostname="virt-handler")
        writer.write(header + b"ping")
        try:
            async with asyncio.timeout(5):
                return await reader.read(4)
        except OSError:
            return b""
        finally:
            writer.close()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path)
    async with made.target():
        yield made


async def exchange(root: Path, path: str) -> bytes:
    """Send SIZE bytes through a socket of the source pod and read as many back."""
    with places.run_directory("source", root) as directory:
        reader, writer = await asyncio.open_unix_connection(sock=places.connect(directory, path), limit=1 << 20)
    data = os.urandom(1 << 16) * (SIZE >> 16)

    async def send() -> None:
        writer.write(data)
        await writer.drain()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        received = await reader.readexactly(SIZE)
    writer.close()
    assert received == data
    return received


async def test_both_channels_lead_from_pod_to_pod(scene: Scene) -> None:
    run_directory(scene.root, "source")
    scene.incoming.expect("mig-1", "target", scene.release)
    relay = scene.relay()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(relay.run())
        await relay.ready.wait()
        await exchange(scene.root, layout.MIGRATION_LIBVIRT_SOCKET)
        await exchange(scene.root, layout.MIGRATION_DATA_SOCKET)
        made = (run_directory(scene.root, "source") / layout.MIGRATION_DATA_SOCKET).lstat()
        task.cancel()

    assert stat.S_ISSOCK(made.st_mode)
    assert (made.st_uid, made.st_gid) == (layout.USER_ID, layout.USER_ID)
    assert scene.seen == [layout.LIBVIRT_SOCKET, layout.MIGRATION_DATA_SOCKET]
    assert not (run_directory(scene.root, "source") / layout.MIGRATION_DATA_SOCKET).exists()


async def test_only_an_expected_migration_of_another_handler_gets_through(scene: Scene) -> None:
    header = Header("mig-1", "libvirt").encode()
    assert await scene.dial(header) == b""
    scene.incoming.expect("mig-1", "target", scene.release)
    assert await scene.dial(header) == b"ping"
    assert await scene.dial(header, name="virt-api") == b""
    assert await scene.dial(Header("mig-2", "libvirt").encode()) == b""
    assert await scene.dial(b"GET / HTTP/1.1\r\n\n") == b""
    scene.incoming.forget("mig-1")
    assert await scene.dial(header) == b""


async def test_the_word_that_the_guest_left_is_acknowledged(scene: Scene) -> None:
    scene.incoming.expect("mig-1", "target", scene.release)
    for paused in (False, True, True):
        await scene.relay().release(paused=paused)

    assert scene.released == [False, True, True]


async def test_a_release_that_could_not_be_carried_out_is_no_success(scene: Scene) -> None:
    with pytest.raises(ConnectionRefusedError):
        await scene.relay().release(paused=False)
    scene.incoming.expect("mig-1", "target", scene.release)
    scene.refusal = launcher.Disconnected("the launcher is\n not connected" + "é" * 2000)
    with pytest.raises(ConnectionRefusedError, match="the launcher is not connected"):
        await scene.relay().release(paused=False)
    scene.refusal = None
    await scene.relay().release(paused=False)

    assert scene.released == [False]


async def test_only_another_handler_may_say_that_the_guest_left(scene: Scene) -> None:
    scene.incoming.expect("mig-1", "target", scene.release)
    assert await scene.dial(Release("mig-1").encode(), name="virt-api") == b""
    assert await scene.dial(b"kubevirt-relay/1 mig-1 released now\n") == b""
    assert scene.released == []
    assert await scene.dial(Release("mig-1").encode()) == b"ok\n"


async def test_forgetting_a_migration_leaves_what_is_open_to_end_by_itself(scene: Scene) -> None:
    """The source's libvirt may still be reading the outcome when the target's handler is done."""
    scene.incoming.expect("mig-1", "target", scene.release)
    context = ClientTls(scene.files).context
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.incoming.port, ssl=context, server_hostname="virt-handler")
    writer.write(Header("mig-1", "data").encode() + b"ping")
    assert await reader.readexactly(4) == b"ping"
    scene.incoming.forget("mig-1")
    writer.write(b"pong")
    async with asyncio.timeout(5):
        assert await reader.readexactly(4) == b"pong"
    writer.close()


def test_a_link_in_place_of_the_migration_directory_is_refused(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    elsewhere.mkdir()
    (run / "migration").symlink_to(elsewhere)
    directory = os.open(run, os.O_PATH)
    try:
        with pytest.raises(OSError), outgoing.listening(directory, layout.MIGRATION_DATA_SOCKET):  # noqa: PT011 - ELOOP or ENOTDIR
            pass
    finally:
        os.close(directory)

    assert list(elsewhere.iterdir()) == []


async def test_a_stale_socket_is_replaced(scene: Scene) -> None:
    stale = run_directory(scene.root, "source") / "migration"
    stale.mkdir()
    (stale / "data.sock").write_text("left by an earlier try")
    scene.incoming.expect("mig-1", "target", scene.release)
    relay = scene.relay()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(relay.run())
        await relay.ready.wait()
        await exchange(scene.root, layout.MIGRATION_DATA_SOCKET)
        task.cancel()
