from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import uvloop
from aiohttp import web

from apiserver.apis.virt.places import layout, streams
from certs.reloading import ClientTls, Files, ServerTls
from handler.streams import pipe
from handler.streams.forwarding import MakeSocket
from handler.streams.limits import DEFAULTS, Limits
from handler.streams.server import Server, Target
from tests import spice_peer
from tests.component.handler.tls import Authority
from tests.fakes.launcher import run_directory


class Guest:
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


class NodeSocket(socket.socket):
    """A socket that connects to this machine instead of pods' addresses; ``UNREACHABLE`` raises OSError."""

    def connect(self, address: tuple[str, int]) -> None:  # type: ignore[override]  # typeshed: of any family
        if address[0] == UNREACHABLE:
            raise OSError(errno.EHOSTUNREACH, "No route to host")
        super().connect(("127.0.0.1", address[1]))


ADDRESS, UNREACHABLE = "10.244.1.7", "10.244.1.8"


class Scene:
    def __init__(self, root: Path, limits: Limits = DEFAULTS, make_socket: MakeSocket = NodeSocket) -> None:
        self.root = root
        self.authority = Authority(root / "certs")
        self.targets: dict[str, Target] = {"uid-1": Target("pod-1")}
        self.guest = Guest()
        tls = ServerTls(self.authority.node("n"), clients=ssl.CERT_REQUIRED)
        self.server = Server(
            lambda _machine, uid: self.targets.get(uid),
            tls,
            host="127.0.0.1",
            port=0,
            kubelet=root,
            limits=limits,
            make_socket=make_socket,
        )

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
    async def port(self, number: int, protocol: streams.Protocol = "tcp") -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        url = self.url(stream=streams.Forward(protocol, number).stream)
        async with (
            self.session() as session,
            session.ws_connect(url, protocols=(streams.SUBPROTOCOL,), server_hostname="n.virt-handler") as websocket,
        ):
            yield websocket

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
"""usbredir's hello with 64-bit ids."""


class UsbGuest(Guest):
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
        assert 'kubevirt.io "testvm": slot 0 for redirected devices is in use' in await refused(0)
        second = await taken(scene, session)
        assert [len(each.writers) for each in guests] == [1, 1]
        assert "every slot for redirected devices is in use" in await refused()
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


async def test_qemu_gets_the_message_that_a_spice_viewer_left_out(scene: Scene) -> None:
    received = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(spice_peer.link(spice_peer.DISPLAY)))
        writer.write(spice_peer.reply())
        await reader.readexactly(132)
        writer.write(bytes(4))
        first = await reader.readexactly(20)
        writer.write(spice_peer.message(314))
        received.set_result((first, await reader.read()))
        writer.close()

    directory = os.open(run_directory(scene.root, "pod-1"), os.O_PATH)
    server = await asyncio.start_unix_server(serve, f"/proc/self/fd/{directory}/{layout.SPICE_SOCKET}")
    async with (
        scene.session() as session,
        session.ws_connect(scene.url(stream="spice"), protocols=(streams.SUBPROTOCOL,), server_hostname="n.virt-handler") as socket,
    ):
        await socket.send_bytes(spice_peer.link(spice_peer.DISPLAY))
        assert await socket.receive_bytes() == spice_peer.reply()
        await socket.send_bytes(b"t" * 132)
        assert await socket.receive_bytes() == bytes(4)
    async with asyncio.timeout(30):
        first, rest = await received
    assert (first[:6], rest) == (spice_peer.message(spice_peer.DISPLAY_INIT, spice_peer.CACHES)[:6], b"")
    server.close()
    os.close(directory)


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
    scene.targets["uid-off"] = Target("pod-1", "the guest is not running (phase Stopped)")

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
        scene.targets["uid-1"] = Target("pod-1", "the guest is not running", moving=True)
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


@pytest.fixture
async def listening(scene: Scene) -> AsyncIterator[int]:
    scene.targets["uid-1"] = Target("pod-1", addresses=(UNREACHABLE, ADDRESS))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data.upper())
        writer.write(b"OK")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_port_is_dialled_at_the_first_address_that_answers(scene: Scene, listening: int) -> None:
    async with scene.port(listening) as websocket:
        await websocket.send_bytes(b"get")
        assert await websocket.receive_bytes() == b"GET"
        assert scene.server.count == 1


async def test_empty_message_ends_only_the_clients_direction(scene: Scene, listening: int) -> None:
    async with scene.port(listening) as websocket:
        await websocket.send_bytes(b"")
        assert await websocket.receive_bytes() == b"OK"
        assert (await websocket.receive()).data == streams.CLOSE_NORMAL


async def test_message_after_the_empty_one_ends_the_connection(scene: Scene) -> None:
    scene.targets["uid-1"] = Target("pod-1", addresses=(ADDRESS,))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with scene.port(silent.getsockname()[1]) as websocket:
            await websocket.send_bytes(b"")
            await websocket.send_bytes(b"more")
            message = await websocket.receive(timeout=30)
    assert (message.data, message.extra) == (pipe.CLOSE_PROTOCOL_ERROR, pipe.AFTER_END)


def test_guest_that_resets_a_connection_ends_its_stream() -> None:
    """uvloop's transport raises RuntimeError at the next write, which only the writer notices."""

    async def close() -> pipe.Close | None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            guest, _ = listening.accept()

        class Stalled(web.WebSocketResponse):
            async def send_bytes(self, data: bytes, compress: int | None = None) -> None:
                guest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                guest.close()
                await asyncio.sleep(60)

            async def __anext__(self) -> aiohttp.WSMessage:
                while not writer.is_closing():
                    await asyncio.sleep(0.01)
                return aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, b"x", None)

        guest.send(b"a")
        return await pipe.connection(Stalled(), reader, writer, has_left=lambda: False)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(close()) == pipe.Close(streams.CLOSE_NORMAL, pipe.CLOSED)


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENOPROTOOPT])
async def test_icmp_error_of_the_guest_ends_no_udp_stream(tmp_path: Path, number: int) -> None:
    errors = [number]

    class Answered(NodeSocket):
        def recv(self, size: int, flags: int = 0, /) -> bytes:
            if errors:
                raise OSError(errors.pop(), "of an ICMP message")
            return super().recv(size, flags)

    scene = Scene(tmp_path, make_socket=Answered)
    scene.targets["uid-1"] = Target("pod-1", addresses=(ADDRESS,))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as guest:
        guest.bind(("127.0.0.1", 0))
        guest.settimeout(0)
        async with scene.running(), scene.port(guest.getsockname()[1], "udp") as websocket:
            await websocket.send_bytes(b"one")
            _, client = await asyncio.get_running_loop().sock_recvfrom(guest, 100)
            guest.sendto(b"two", client)
            assert await websocket.receive_bytes(timeout=30) == b"two"
    assert not errors


async def test_each_datagram_of_a_udp_port_is_a_message(scene: Scene) -> None:
    scene.targets["uid-1"] = Target("pod-1", addresses=(ADDRESS,))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as guest:
        guest.bind(("127.0.0.1", 0))
        guest.settimeout(0)
        async with scene.port(guest.getsockname()[1], "udp") as websocket:
            for each in (b"one", b"", b"three"):
                await websocket.send_bytes(each)
            found = [await asyncio.get_running_loop().sock_recvfrom(guest, 100) for _ in range(3)]
            assert [data for data, _ in found] == [b"one", b"", b"three"]
            for each in (b"a", b"b"):
                guest.sendto(each, found[0][1])
            assert [await websocket.receive_bytes() for _ in range(2)] == [b"a", b"b"]


async def test_port_ends_when_the_guest_has_left_its_pod(scene: Scene, listening: int) -> None:
    async with scene.port(listening) as websocket:
        scene.targets["uid-1"] = Target("pod-2", addresses=(ADDRESS,), moving=True)
        message = await websocket.receive(timeout=30)
        assert (message.data, message.extra) == (streams.CLOSE_GOING_AWAY, "the guest moved to another node; connect again")


@pytest.mark.parametrize(
    ("addresses", "code", "why"),
    [
        ((ADDRESS,), 400, "TCP port {} of virtual machine default/testvm does not answer: Connection refused"),
        ((UNREACHABLE,), 400, "No route to host"),
        ((), 400, "the guest has no address in the pod's network"),
        (("127.0.0.1", "::1", "169.254.169.254"), 400, "the guest has no address in the pod's network"),
        (None, 503, "does not know the guest's address yet"),
    ],
)
async def test_port_that_does_not_answer_is_an_error(scene: Scene, addresses: tuple[str, ...] | None, code: int, why: str) -> None:
    scene.targets["uid-1"] = Target("pod-1", addresses=addresses)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        refused = await scene.refused(scene.url(stream=streams.Forward("tcp", port).stream))
    assert refused["code"] == code
    assert why.format(port) in str(refused["message"])
    assert scene.server.count == 0


async def test_names_that_are_no_port_are_unknown_streams(scene: Scene) -> None:
    for name in ("portforward", "portforward-tcp-0", "portforward-tcp-65536", "portforward-icmp-1", "portforward-tcp-22-1"):
        assert (await scene.refused(scene.url(stream=name)))["code"] == 404


async def test_connections_to_ports_have_their_own_larger_limit(scene: Scene, listening: int) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(DEFAULTS.max_streams_per_machine * streams.CONNECTIONS):
            await stack.enter_async_context(scene.port(listening))
        refused = await scene.refused(scene.url(stream=streams.Forward("tcp", listening).stream))
        assert (refused["code"], refused["reason"]) == (429, "TooManyRequests")
        assert "32 to portforward of virtual machine default/testvm are open" in str(refused["message"])
        await stack.enter_async_context(scene.console())


async def test_channels_of_spice_are_streams_with_a_larger_limit(scene: Scene) -> None:
    display, link = Guest(), spice_peer.link(spice_peer.INPUTS)
    directory = os.open(run_directory(scene.root, "pod-1"), os.O_PATH)
    server = await asyncio.start_unix_server(display.serve, f"/proc/self/fd/{directory}/{layout.SPICE_SOCKET}")
    try:
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(scene.session())
            for _ in range(DEFAULTS.max_streams_per_machine * streams.CONNECTIONS):
                channel = await session.ws_connect(
                    scene.url(stream="spice"), protocols=(streams.SUBPROTOCOL,), server_hostname="n.virt-handler"
                )
                await stack.enter_async_context(channel)
                await channel.send_bytes(link)
                assert [await channel.receive_bytes() for _ in range(2)] == [b"login: ", link.upper()]
            assert len(display.writers) == DEFAULTS.max_streams_per_machine * streams.CONNECTIONS
            refused = await scene.refused(scene.url(stream="spice"))
            assert "32 to spice of virtual machine default/testvm are open" in str(refused["message"])
    finally:
        display.power_off()
        server.close()
        os.close(directory)


async def test_slow_client_of_a_port_slows_no_other(scene: Scene, listening: int) -> None:
    sent = 0
    flooding = asyncio.Event()

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while not writer.is_closing():
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16
            flooding.set()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    async with scene.port(server.sockets[0].getsockname()[1]) as slow, scene.port(listening) as quick:
        slow._reader._protocol.pause_reading()
        await flooding.wait()
        await quick.send_bytes(b"get")
        assert await quick.receive_bytes(timeout=10) == b"GET"
        before = -1
        async with asyncio.timeout(60):
            while before != sent:
                before = sent
                await asyncio.sleep(1)
        assert sent < 16 << 20
    server.close()


async def test_log_is_only_read_and_followed_if_asked(scene: Scene) -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"booted\n")
        seen.append(await reader.read(100))
        writer.write(b"later\n")
        writer.close()

    directory = os.open(run_directory(scene.root, "pod-1"), os.O_PATH)
    server = await asyncio.start_unix_server(serve, f"/proc/self/fd/{directory}/{layout.log_socket(1)}")
    async with scene.session() as session:
        for follow in (False, True):
            url = scene.url(stream=streams.log(1, follow=follow))
            async with session.ws_connect(url, protocols=(streams.SUBPROTOCOL,), server_hostname="n.virt-handler") as websocket:
                if follow:
                    assert await websocket.receive_bytes() == b"booted\n"
                    await websocket.send_bytes(b"rm -rf /\n")
                    message = await websocket.receive(timeout=10)
                    assert (message.data, message.extra) == (1003, "this stream is only read")
                else:
                    printed = b""
                    while (message := await websocket.receive(timeout=10)).type is aiohttp.WSMsgType.BINARY:
                        printed += message.data
                    assert printed == b"booted\nlater\n"
                    assert (message.data, message.extra) == (streams.CLOSE_NORMAL, "the end of the output")
    async with asyncio.timeout(30):
        while len(seen) < 2:
            await asyncio.sleep(0.01)
    server.close()
    os.close(directory)
    assert seen == [b"", b""]
