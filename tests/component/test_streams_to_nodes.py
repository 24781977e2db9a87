from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from apiserver.apis.meta import errors
from apiserver.apis.virt.places import layout
from apiserver.endpoints.verbs import joining
from apiserver.registry.virt.revoking import RevokedNodes
from apiserver.registry.virt.streams import HandlerStream
from certs.reloading import ClientTls, Files, ServerTls
from handler.streams.server import Server, Target
from tests.component.handler.tls import Authority, Operator, revoking
from tests.component.handler.world import eventually
from tests.fakes.launcher import run_directory


def framed(data: bytes) -> bytes:
    return Frame(Opcode.BINARY, data).serialize(mask=False)


class Scene:
    def __init__(self, root: Path, authority: Authority, revoked: RevokedNodes, operator: Operator) -> None:
        self.root, self.authority, self.revoked, self.operator = root, authority, revoked, operator
        self.typed: list[bytes] = []
        self.port = 0
        tls = ClientTls(authority.virt_api())
        self.stream = HandlerStream("console", self._locate, lambda: tls.context, revoked)

    async def _locate(self, node: str) -> tuple[str, int]:
        assert node
        return "127.0.0.1", self.port

    def vm(self, node: str = "node1") -> dict[str, Any]:
        return {
            "metadata": {"name": "vm1", "namespace": "default", "uid": "u1"},
            "spec": {"domain": {"devices": {"consoles": [{"type": "pty"}]}}},
            "status": {"phase": "Running", "nodeName": node},
        }

    @asynccontextmanager
    async def handler(self, files: Files) -> AsyncIterator[None]:
        tls = ServerTls(files, clients=ssl.CERT_REQUIRED)
        server = Server(lambda *_: Target("pod-1"), tls, host="127.0.0.1", port=0, kubelet=self.root)
        handle = os.open(run_directory(self.root, "pod-1"), os.O_PATH)
        console = await asyncio.start_unix_server(self._console, f"/proc/self/fd/{handle}/{layout.CONSOLE_SOCKET}")
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(server.run())
            await server.ready.wait()
            self.port = server.port
            yield
            task.cancel()
        console.close()
        os.close(handle)

    async def _console(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            self.typed.append(data)
            writer.write(data.upper())
        writer.close()

    @asynccontextmanager
    async def console(self, node: str = "node1") -> AsyncIterator[ClientConnection]:
        destination = await self.stream.locate(self.vm(node), {})
        async with joining.dialled(destination, self.stream) as server:
            yield server


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    authority = Authority(tmp_path / "certs")
    async with revoking(authority) as (revoked, operator):
        yield Scene(tmp_path, authority, revoked, operator)


async def test_the_handler_of_the_machines_node_gets_the_keystrokes(scene: Scene) -> None:
    async with scene.handler(scene.authority.node("node1")), scene.console() as console:
        await console.send(b"root\n")
        assert await console.recv() == framed(b"ROOT\n")

    assert scene.typed == [b"root\n"]


UNTRUSTED: dict[str, Callable[[Authority], Files]] = {
    "another node": lambda authority: authority.node("node2"),
    "the key that all nodes shared": lambda authority: authority.shared(),
    "virt-api": lambda authority: authority.virt_api(),
    "another authority": lambda authority: Authority(authority._root / "other").node("node1"),
    "no name": lambda authority: authority.node("node1", dns_names=()),
}


@pytest.mark.parametrize("untrusted", UNTRUSTED)
async def test_untrusted_peers_at_the_nodes_address_get_no_stream(scene: Scene, untrusted: str) -> None:
    async with scene.handler(UNTRUSTED[untrusted](scene.authority)):
        with pytest.raises(errors.ServiceUnavailable, match=r"^virt-handler of node node1 cannot be reached: "):
            async with scene.console():
                pass

    assert scene.typed == []


async def test_a_revoked_node_is_not_dialled_and_its_open_streams_end(scene: Scene) -> None:
    async with scene.handler(scene.authority.node("node1")):
        async with scene.console() as console:
            await console.send(b"a")
            assert await console.recv() == framed(b"A")
            await scene.operator.revoke("node2")
            await eventually(lambda: scene.revoked.is_revoked("node2"))
            await console.send(b"b")
            assert await console.recv() == framed(b"B")
            await scene.operator.revoke("node1")
            with pytest.raises(ConnectionClosed):
                async with asyncio.timeout(30):
                    await console.recv()
        with pytest.raises(errors.ServiceUnavailable, match='node "node1" is revoked'):
            async with scene.console():
                pass
        await scene.operator.pardon("node1")
        await eventually(lambda: not scene.revoked.is_revoked("node1"))
        async with scene.console() as console:
            await console.send(b"c")
            assert await console.recv() == framed(b"C")

    assert scene.revoked._callbacks == []


async def test_certificate_from_before_the_revocation_time_is_refused(scene: Scene) -> None:
    await scene.operator.revoke("node1", "2126-01-01T00:00:00Z")
    await eventually(lambda: bool(scene.revoked._revocations.nodes))
    async with scene.handler(scene.authority.node("node1")):
        with pytest.raises(
            errors.ServiceUnavailable, match=r"^virt-handler of node node1 is not trusted: certificates of node node1 from before 2126"
        ):
            async with scene.console():
                pass

    assert scene.typed == []


async def test_node_name_too_long_for_a_certificate_is_reported(scene: Scene) -> None:
    with pytest.raises(errors.ServiceUnavailable, match="cannot get a certificate"):
        await scene.stream.locate(scene.vm("a" * 64), {})
