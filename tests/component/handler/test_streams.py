"""Consoles over mTLS: authorization, errors, and the end of streams."""

from __future__ import annotations

import asyncio
import os
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from apiserver.apis.virt.places import layout, streams
from certs.reloading import ClientTls, Files, ServerTls
from handler.streams.limits import DEFAULTS, Limits
from handler.streams.server import Server, Target
from tests.component.handler.tls import Authority
from tests.fakes.launcher import run_directory


class Guest:
    """A pod's console socket: sends a greeting, and echoes in capitals."""

    greeting = b"login: "

    def __init__(self) -> None:
        self.received = b""
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        writer.write(self.greeting)
        while data := await reader.read(1 << 16):
            self.received += data
            writer.write(data.upper())
        writer.close()

    def power_off(self) -> None:
        for writer in self.writers:
            writer.close()


class Scene:
    def __init__(self, root: Path, limits: Limits = DEFAULTS) -> None:
        self.root = root
        self.authority = Authority(root / "certs")
        self.targets: dict[str, Target] = {"uid-1": Target("pod-1")}
        self.guest = Guest()
        tls = ServerTls(self.authority.node("n"), clients=ssl.CERT_REQUIRED)
        self.server = Server(lambda _machine, uid: self.targets.get(uid), tls, host="127.0.0.1", port=0, kubelet=root, limits=limits)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        directory = os.open(run_directory(self.root, "pod-1"), os.O_PATH)
        console = await asyncio.start_unix_server(self.guest.serve, f"/proc/self/fd/{directory}/{layout.CONSOLE_SOCKET}")
        try:
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(self.server.run())
                await self.server.ready.wait()
                yield
                task.cancel()
        finally:
            self.guest.power_off()
            console.close()
            os.close(directory)

    @asynccontextmanager
    async def session(self, files: Files | None = None) -> AsyncIterator[aiohttp.ClientSession]:
        context = ClientTls(files or self.authority.virt_api()).context
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            yield session

    def url(self, uid: str = "uid-1", stream: str = "console") -> str:
        return f"https://127.0.0.1:{self.server.port}{streams.handler_path('default', 'testvm', uid, stream)}"

    @asynccontextmanager
    async def console(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        async with (
            self.session() as session,
            session.ws_connect(self.url(), protocols=(streams.SUBPROTOCOL,), server_hostname="n.virt-handler") as socket,
        ):
            yield socket

    async def refused(self, url: str, files: Files | None = None, protocol: str = streams.SUBPROTOCOL) -> dict[str, object]:
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        }
        async with (
            self.session(files) as session,
            session.get(url, headers={**headers, "Sec-WebSocket-Protocol": protocol}, server_hostname="n.virt-handler") as response,
        ):
            body: dict[str, object] = await response.json()
            assert body["kind"] == "Status"
            assert body["code"] == response.status
            return body


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path)
    async with made.running():
        yield made


async def test_a_console_carries_bytes_both_ways(scene: Scene) -> None:
    async with scene.console() as socket:
        assert socket.protocol == streams.SUBPROTOCOL
        assert await socket.receive_bytes() == b"login: "
        await socket.send_bytes(b"root\n")
        assert await socket.receive_bytes() == b"ROOT\n"
        assert scene.server.count == 1

    assert scene.guest.received == b"root\n"


async def test_a_further_serial_port_has_a_console_of_its_own(scene: Scene) -> None:
    other = Guest()
    directory = os.open(run_directory(scene.root, "pod-1"), os.O_PATH)
    second = await asyncio.start_unix_server(other.serve, f"/proc/self/fd/{directory}/{layout.console_socket(1)}")
    try:
        async with (
            scene.session() as session,
            session.ws_connect(
                scene.url(stream=streams.console(1)), protocols=(streams.SUBPROTOCOL,), server_hostname="n.virt-handler"
            ) as socket,
        ):
            assert await socket.receive_bytes() == b"login: "
            await socket.send_bytes(b"root\n")
            assert await socket.receive_bytes() == b"ROOT\n"
        assert (scene.guest.received, other.received) == (b"", b"root\n")
        absent = await scene.refused(scene.url(stream=streams.console(2)))
        assert (absent["code"], absent["reason"]) == (400, "BadRequest")
        unknown = await scene.refused(scene.url(stream=streams.console(9)))
        assert unknown["code"] == 404
    finally:
        other.power_off()
        second.close()
        os.close(directory)


HELLO = struct.pack("<III64sI", 0, 68, 0, b"a guest", 1 << 5)
"""For usbredir, with 64-bit ids."""


class UsbGuest(Guest):
    """QEMU's end of a slot."""

    greeting = HELLO


@asynccontextmanager
async def slots(scene: Scene, *numbers: int) -> AsyncIterator[list[UsbGuest]]:
    guests = [UsbGuest() for _ in numbers]
    directory = os.open(run_directory(scene.root, "pod-1"), os.O_PATH)
    paths = [f"/proc/self/fd/{directory}/{layout.redirection_socket(number)}" for number in numbers]
    servers = [await asyncio.start_unix_server(guest.serve, path) for guest, path in zip(guests, paths, strict=True)]
    try:
        yield guests
    finally:
        for guest, server in zip(guests, servers, strict=True):
            guest.power_off()
            server.close()
        os.close(directory)


async def taken(
    scene: Scene, session: aiohttp.ClientSession, slot: int | None = None, uid: str = "uid-1"
) -> aiohttp.ClientWebSocketResponse:
    """Return a stream of a slot, after QEMU's hello."""
    url = scene.url(uid, streams.usbredir(slot))
    socket = await session.ws_connect(url, protocols=(streams.SUBPROTOCOL,), server_hostname="n.virt-handler")
    assert await socket.receive_bytes() == HELLO
    return socket


async def test_usb_device_takes_the_first_free_slot(scene: Scene) -> None:
    async with slots(scene, 0, 1) as guests, scene.session() as session:

        async def refused(slot: int | None = None) -> str:
            body = await scene.refused(scene.url(stream=streams.usbredir(slot)))
            assert (body["code"], body["reason"]) == (409, "Conflict")
            return str(body["message"])

        first = await taken(scene, session)
        assert [len(each.writers) for each in guests] == [1, 0]
        assert 'kubevirt.io "testvm": slot 0 for redirected devices has a client' in await refused(0)
        second = await taken(scene, session)
        assert [len(each.writers) for each in guests] == [1, 1]
        assert "every slot for redirected devices has a client" in await refused()
        assert "slot 1 for" in await refused(1)
        assert scene.server.count == 2
        await first.close()
        async with asyncio.timeout(30):
            while scene.server.count > 1:
                await asyncio.sleep(0.01)
        third = await taken(scene, session)
        assert [len(each.writers) for each in guests] == [2, 1]
        for each in (second, third):
            await each.close()


async def test_usb_slots_are_per_machine_and_failed_dials_take_none(scene: Scene) -> None:
    scene.targets["uid-2"] = Target("pod-2")
    for _ in range(2):
        absent = await scene.refused(scene.url("uid-2", stream=streams.usbredir()))
        assert (absent["code"], absent["message"]) == (400, "virtual machine default/testvm has no usbredir0 now")
    async with slots(scene, 0), scene.session() as session:
        for uid in ("uid-1", "uid-3"):
            scene.targets[uid] = Target("pod-1")
            await taken(scene, session, 0, uid)


async def test_usb_protocol_violations_do_not_reach_the_guest(scene: Scene) -> None:
    async with slots(scene, 0) as (guest,), scene.session() as session:
        socket = await taken(scene, session)
        disconnect = struct.pack("<IIQ", 2, 0, 0)
        await socket.send_bytes(HELLO + disconnect)
        assert await socket.receive_bytes() == (HELLO + disconnect).upper()
        await socket.send_bytes(disconnect + struct.pack("<IIQ", 101, 129 << 20, 0))
        closed = await socket.receive()
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1002)
        assert closed.extra == "a packet of type 101 has 135266304 bytes, and not 8 to 8388616"
        assert guest.received == HELLO + disconnect


async def test_several_may_attach_to_one_console(scene: Scene) -> None:
    async with scene.console() as one, scene.console() as other:
        assert await one.receive_bytes() == await other.receive_bytes() == b"login: "


async def test_only_virt_api_is_served(scene: Scene) -> None:
    body = await scene.refused(scene.url(), scene.authority.node("n2"))

    assert body["code"] == 403
    assert "virt-handler" in str(body["message"])


async def test_client_without_a_certificate_fails_the_handshake(scene: Scene) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(scene.url())


async def test_errors_come_before_the_upgrade_as_status_objects(scene: Scene) -> None:
    scene.targets["uid-off"] = Target("pod-1", "the guest does not run (phase Stopped)")

    assert (await scene.refused(scene.url("other")))["code"] == 404
    assert (await scene.refused(scene.url().replace("console", "telnet")))["code"] == 404
    off = await scene.refused(scene.url("uid-off"))
    assert off["code"] == 400
    assert "phase Stopped" in str(off["message"])
    assert (await scene.refused(scene.url(), protocol="chat"))["code"] == 400
    assert "has no vnc" in str((await scene.refused(scene.url(stream="vnc")))["message"])


async def test_the_end_of_the_guest_closes_the_stream_with_a_reason(scene: Scene) -> None:
    async with scene.console() as socket:
        await socket.receive_bytes()
        scene.guest.power_off()
        message = await socket.receive()

    assert (message.type, message.data, message.extra) == (aiohttp.WSMsgType.CLOSE, streams.CLOSE_NORMAL, "the guest is off")


async def test_the_stream_of_a_guest_that_moved_says_dial_again(scene: Scene) -> None:
    async with scene.console() as socket:
        await socket.receive_bytes()
        scene.targets["uid-1"] = Target("pod-1", "the guest does not run", moving=True)
        scene.guest.power_off()
        message = await socket.receive()

    assert message.data == streams.CLOSE_GOING_AWAY


async def test_a_text_message_ends_the_stream(scene: Scene) -> None:
    async with scene.console() as socket:
        await socket.receive_bytes()
        await socket.send_str("hello")
        message = await socket.receive()

    assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1003)


async def test_a_link_in_place_of_the_socket_is_refused(scene: Scene) -> None:
    directory = run_directory(scene.root, "pod-1")
    (directory / layout.VNC_SOCKET).symlink_to(layout.CONSOLE_SOCKET)

    body = await scene.refused(scene.url(stream="vnc"))

    assert body["code"] == 400
    assert scene.guest.writers == []


async def test_slow_reader_blocks_the_guest_not_memory(scene: Scene) -> None:
    async with scene.console() as socket:
        await socket.receive_bytes()
        await asyncio.sleep(0.05)
        writer = scene.guest.writers[0]
        sent, chunk = 0, bytes(1 << 20)
        try:
            async with asyncio.timeout(0.5):
                while sent < 512 << 20:
                    writer.write(chunk)
                    await writer.drain()
                    sent += len(chunk)
        except TimeoutError:
            pass

    assert sent < 64 << 20


async def test_a_stopping_handler_closes_streams_with_going_away(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    messages: list[aiohttp.WSMessage] = []
    async with scene.session() as session:
        async with scene.running():
            socket = await session.ws_connect(scene.url(), protocols=(streams.SUBPROTOCOL,), server_hostname="n.virt-handler")
            await socket.receive_bytes()

            async def read() -> None:
                messages.append(await socket.receive())

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(read())
                await asyncio.sleep(0.05)
                await scene.server._go_away(None)  # type: ignore[arg-type]  # what aiohttp calls when the server stops
        await socket.close()

    assert messages[0].data == streams.CLOSE_GOING_AWAY
