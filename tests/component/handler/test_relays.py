from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from apiserver.apis.virt.places import layout
from certs.reloading import ClientTls, Files, ServerTls
from handler.identity.trust import Trust
from handler.pods import launcher, places
from handler.relays import copying, outgoing
from handler.relays.header import Header, Release
from handler.relays.incoming import DEFAULT_LIMITS, Expected, Incoming, Limits
from handler.relays.outgoing import Destination, Outgoing
from handler.relays.process import RelayProcess
from handler.relays.target_processes import UNNAMED, TargetProcesses
from tests.component.handler.tls import Authority, Operator, trusting
from tests.component.handler.world import eventually
from tests.fakes.launcher import run_directory
from tests.own_time import within

SIZE = 3 << 20


class Scene:
    """Migrations between nodes n and n2: the relay server of n2, and its pod, which echoes."""

    def __init__(self, root: Path, authority: Authority, trust: Trust, operator: Operator, limits: Limits) -> None:
        self.root = root
        self.authority, self.trust, self.operator = authority, trust, operator
        self.source, self.files = authority.node("n"), authority.node("n2")
        tls = ServerTls(self.files, clients=ssl.CERT_REQUIRED)
        self.incoming = Incoming(tls, trust.node_of, host="127.0.0.1", port=0, kubelet=root, limits=limits)
        self.seen: list[str] = []
        self.released: list[bool] = []
        self.refusal: launcher.Disconnected | None = None
        self.echoing: set[asyncio.StreamWriter] = set()

    def relay(self, node: str = "n2", files: Files | None = None, process: RelayProcess | None = None) -> Outgoing:
        destination = Destination(node, f"127.0.0.1:{self.incoming.port}")
        return Outgoing("mig-1", "source", destination, ClientTls(files or self.source), self.trust.node_of, self.root, process)

    def expect(self) -> None:
        self.incoming.expect("mig-1", Expected("target", "n", self.release))

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
            for path in (layout.LIBVIRT_SOCKET, layout.MIGRATION_DATA_SOCKET, layout.MIGRATION_DISKS_SOCKET):
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

    async def connect(self, files: Files | None = None, protocol: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect as the source's virt-handler, offering ``protocol`` (ALPN); empty: as one of an older version."""
        tls = ClientTls(files or self.source)
        context = tls.offering(protocol) if protocol else tls.context
        return await asyncio.open_connection("127.0.0.1", self.incoming.port, ssl=context, server_hostname="n2.virt-handler")

    async def dial(self, header: bytes, files: Files | None = None, protocol: str = "") -> bytes:
        reader, writer = await self.connect(files, protocol)
        writer.write(header + b"ping")
        try:
            async with asyncio.timeout(30):
                return await reader.read(4)
        except OSError:
            return b""
        finally:
            writer.close()


@pytest.fixture
async def scene(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    authority = Authority(tmp_path / "certs")
    async with trusting(tmp_path, authority) as (trust, operator):
        made = Scene(tmp_path, authority, trust, operator, getattr(request, "param", Limits(last_seconds=0.2)))
        async with made.target():
            yield made


async def exchange(root: Path, path: str) -> bytes:
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
    scene.expect()
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


async def test_only_an_expected_migration_of_another_handler_passes(scene: Scene) -> None:
    header = Header("mig-1", "libvirt").encode()
    assert await scene.dial(header) == b""
    scene.expect()
    assert await scene.dial(header) == b"ping"
    assert await scene.dial(header, scene.authority.virt_api()) == b""
    assert await scene.dial(Header("mig-2", "libvirt").encode()) == b""
    assert await scene.dial(b"GET / HTTP/1.1\r\n\n") == b""
    scene.incoming.forget("mig-1")
    assert await scene.dial(header) == b""


async def test_connection_of_a_migration_is_in_its_own_process(scene: Scene) -> None:
    scene.expect()
    scene.incoming.expect("mig-2", Expected("target", "n", scene.release))
    opened = [await scene.connect(protocol=each) for each in ("kubevirt-relay/mig-1", "kubevirt-relay/mig-2", "", "kubevirt-relay/mig-3")]
    for (_, writer), uid in zip(opened, ("mig-1", "mig-2", "mig-2", "mig-2"), strict=True):
        writer.write(Header(uid, "data").encode() + b"ping")
    async with asyncio.timeout(30):
        assert [await reader.readexactly(4) for reader, _ in opened] == [b"ping"] * 4
    running = scene.incoming._processes.running
    assert set(running) == {"mig-1", "mig-2", UNNAMED}
    pid = running["mig-1"].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        assert await opened[0][0].read() == b""
    for reader, writer in opened[1:]:
        writer.write(b"more")
        assert await reader.readexactly(4) == b"more"
    for _, writer in opened:
        writer.close()


async def test_connection_that_names_two_migrations_is_refused(scene: Scene) -> None:
    """Otherwise a source could fill another migration's process."""
    scene.expect()
    scene.incoming.expect("mig-2", Expected("target", "n3", scene.release))
    line = Header("mig-1", "data").encode()
    assert await scene.dial(line, protocol="kubevirt-relay/mig-2") == b""
    assert await scene.dial(Release("mig-1").encode(), protocol="kubevirt-relay/mig-2") == b""
    assert (scene.seen, scene.released) == ([], [])
    assert await scene.dial(line, protocol="kubevirt-relay/mig-1") == b"ping"


async def test_process_without_connections_ends(scene: Scene) -> None:
    processes = scene.incoming._processes = TargetProcesses(idle_seconds=0.3)
    scene.expect()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(processes.run())
        assert await scene.dial(Header("mig-1", "data").encode(), protocol="kubevirt-relay/mig-1") == b"ping"
        first = processes.running["mig-1"].pid
        reader, writer = await scene.connect(protocol="kubevirt-relay/mig-1")
        writer.write(Header("mig-1", "data").encode() + b"ping")
        assert await reader.readexactly(4) == b"ping"
        await asyncio.sleep(0.6)
        assert processes.running["mig-1"].pid == first
        writer.close()
        await eventually(lambda: not processes.running)
        await eventually(lambda: not Path(f"/proc/{first}").exists())
        task.cancel()
    await scene.relay().release(paused=False)
    await processes.end()


@pytest.mark.parametrize("scene", [Limits(handshake_seconds=0.3)], indirect=True)
@pytest.mark.parametrize("said", [b"", b"\x16\x03", b"\x16\x03\x01\x02\x00half", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff"])
async def test_client_without_a_whole_first_record_is_closed(scene: Scene, said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.incoming.port)
    writer.write(said)
    async with asyncio.timeout(8):  # less than the default
        with contextlib.suppress(ConnectionError):
            await reader.read()
    writer.close()
    await eventually(lambda: not scene.incoming._handshakes)


async def test_the_word_that_the_guest_left_is_acknowledged(scene: Scene) -> None:
    scene.expect()
    for paused in (False, True, True):
        await scene.relay().release(paused=paused)

    assert scene.released == [False, True, True]


async def test_a_release_that_could_not_be_carried_out_is_no_success(scene: Scene) -> None:
    with pytest.raises(ConnectionRefusedError):
        await scene.relay().release(paused=False)
    scene.expect()
    scene.refusal = launcher.Disconnected("virt-launcher is\n not connected" + "é" * 2000)
    with pytest.raises(ConnectionRefusedError, match="virt-launcher is not connected"):
        await scene.relay().release(paused=False)
    scene.refusal = None
    await scene.relay().release(paused=False)

    assert scene.released == [False]


async def test_only_another_handler_may_say_that_the_guest_left(scene: Scene) -> None:
    scene.expect()
    assert await scene.dial(Release("mig-1").encode(), scene.authority.virt_api()) == b""
    assert await scene.dial(b"kubevirt-relay/1 mig-1 released now\n") == b""
    assert scene.released == []
    assert await scene.dial(Release("mig-1").encode()) == b"ok\n"


async def test_connections_of_a_migration_are_limited(scene: Scene) -> None:
    scene.expect()
    header = Header("mig-1", "data").encode()
    async with contextlib.AsyncExitStack() as stack:

        async def connected() -> asyncio.StreamWriter:
            reader, writer = await scene.connect()
            stack.callback(writer.close)
            writer.write(header + b"ping")
            async with asyncio.timeout(30):
                assert await reader.readexactly(4) == b"ping"
            return writer

        opened = [await connected() for _ in range(copying.MAX_CONNECTIONS)]
        for _ in range(2):
            assert await scene.dial(header) == b""
        assert len(scene.seen) == copying.MAX_CONNECTIONS
        scene.incoming.expect("mig-2", Expected("target", "n", scene.release))
        assert await scene.dial(Header("mig-2", "data").encode()) == b"ping"
        for channel in ("libvirt", "disks"):
            assert await scene.dial(Header("mig-1", channel).encode()) == b"ping"
        opened[3].close()
        await eventually(lambda: len(scene.incoming._connections[Header("mig-1", "data")]) == copying.MAX_CONNECTIONS - 1)
        await connected()
        assert await scene.dial(header) == b""


async def test_forgotten_migration_keeps_its_open_connections(scene: Scene) -> None:
    scene.expect()
    reader, writer = await scene.connect()
    writer.write(Header("mig-1", "data").encode() + b"ping")
    assert await reader.readexactly(4) == b"ping"
    scene.incoming.forget("mig-1")
    writer.write(b"pong")
    async with asyncio.timeout(30):
        assert await reader.readexactly(4) == b"pong"
    writer.close()


async def test_a_pod_that_dials_without_end_gets_a_few_relays(scene: Scene) -> None:
    """With a slow target, each costs virt-handler two descriptors."""
    run_directory(scene.root, "source")
    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as silent, contextlib.ExitStack() as stack:
        silent.setblocking(False)
        destination = Destination("n2", f"127.0.0.1:{silent.getsockname()[1]}")
        relay = Outgoing("mig-1", "source", destination, ClientTls(scene.source), scene.trust.node_of, scene.root)

        async def accept() -> None:
            while True:
                link, _ = await asyncio.get_running_loop().sock_accept(silent)
                accepted.append(stack.enter_context(link))

        async with asyncio.TaskGroup() as tasks:
            ending = [tasks.create_task(part) for part in (relay.run(), accept())]
            await relay.ready.wait()
            with places.run_directory("source", scene.root) as directory:
                links = [stack.enter_context(await dialled(directory, layout.MIGRATION_DATA_SOCKET)) for _ in range(50)]
                assert all([await hangs_up(link) for link in links[copying.MAX_CONNECTIONS :]])
                assert len(accepted) == copying.MAX_CONNECTIONS
                for link in accepted:
                    link.shutdown(socket.SHUT_RDWR)
                assert all([await hangs_up(link) for link in links])
                stack.enter_context(await dialled(directory, layout.MIGRATION_DATA_SOCKET))
                await eventually(lambda: len(accepted) == copying.MAX_CONNECTIONS + 1)
            accepted[-1].shutdown(socket.SHUT_RDWR)
            for task in ending:
                task.cancel()


async def test_a_source_node_that_dials_without_end_gets_a_few_relays(scene: Scene) -> None:
    scene.expect()
    opened = [await scene.connect() for _ in range(copying.MAX_CONNECTIONS + 4)]
    try:
        for _, writer in opened:
            writer.write(Header("mig-1", "data").encode() + b"ping")
        async with asyncio.timeout(30):
            words = [await reader.read(4) for reader, _ in opened]
        assert sorted(words) == [b""] * 4 + [b"ping"] * copying.MAX_CONNECTIONS
        for _, writer in opened:
            writer.close()
        await eventually(lambda: not scene.incoming._connections)
        assert await scene.dial(Header("mig-1", "data").encode()) == b"ping"
    finally:
        for _, writer in opened:
            writer.close()


async def test_silent_connections_of_a_node_are_limited(scene: Scene) -> None:
    scene.incoming.expect("mig-2", Expected("target", "n3", scene.release))
    opened = [await scene.connect() for _ in range(DEFAULT_LIMITS.pending_per_node)]
    await eventually(lambda: scene.incoming._pending["n"] == DEFAULT_LIMITS.pending_per_node)
    reader, writer = await scene.connect()
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    assert await scene.dial(Header("mig-2", "data").encode(), scene.authority.node("n3")) == b"ping"
    for _, other in opened:
        other.close()
    await eventually(lambda: not scene.incoming._pending)
    scene.expect()
    assert await scene.dial(Header("mig-1", "data").encode()) == b"ping"


async def test_unanswered_release_requests_are_limited(scene: Scene) -> None:
    answered, asked = asyncio.Event(), 0

    async def release(paused: bool) -> None:
        nonlocal asked
        asked += 1
        await answered.wait()
        scene.released.append(paused)

    scene.incoming.expect("mig-1", Expected("target", "n", release))
    opened = [await scene.connect() for _ in range(DEFAULT_LIMITS.pending_per_node)]
    for _, writer in opened:
        writer.write(Release("mig-1").encode())
    await eventually(lambda: asked == DEFAULT_LIMITS.pending_per_node)
    reader, writer = await scene.connect()
    writer.write(Release("mig-1").encode())
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    answered.set()
    assert [await reader.read() for reader, _ in opened] == [b"ok\n"] * DEFAULT_LIMITS.pending_per_node
    assert asked == DEFAULT_LIMITS.pending_per_node
    for _, each in (*opened, (reader, writer)):
        each.close()


async def test_ended_migration_closes_the_sources_way_into_the_pod(scene: Scene) -> None:
    scene.expect()
    scene.incoming.expect("mig-2", Expected("target", "n", scene.release))
    kept, other = await scene.connect(), await scene.connect()
    for (reader, writer), uid in ((kept, "mig-1"), (other, "mig-2")):
        writer.write(Header(uid, "libvirt").encode() + b"ping")
        assert await reader.readexactly(4) == b"ping"
    scene.incoming.forget("mig-1")
    scene.incoming.forget("mig-1")
    kept[1].write(b"last")
    assert await kept[0].readexactly(4) == b"last"
    async with asyncio.timeout(30):
        with contextlib.suppress(ConnectionError):
            assert await kept[0].read() == b""
    other[1].write(b"more")
    assert await other[0].readexactly(4) == b"more"
    for _, writer in (kept, other):
        writer.close()


async def test_migration_expected_again_keeps_its_connections(scene: Scene) -> None:
    scene.expect()
    reader, writer = await scene.connect()
    writer.write(Header("mig-1", "libvirt").encode() + b"ping")
    assert await reader.readexactly(4) == b"ping"
    scene.incoming.forget("mig-1")
    scene.expect()
    await asyncio.sleep(0.4)
    writer.write(b"more")
    assert await reader.readexactly(4) == b"more"
    writer.close()


@pytest.mark.parametrize(
    "scene",
    [Limits(handshakes_per_address=2, handshake_seconds=60), Limits(handshakes=2, handshake_seconds=60)],
    ids=["of one address", "of all"],
    indirect=True,
)
async def test_unidentified_clients_have_few_places(scene: Scene) -> None:
    scene.expect()
    silent = [await asyncio.open_connection("127.0.0.1", scene.incoming.port) for _ in range(2)]
    await eventually(lambda: scene.incoming._handshakes.total() == 2)
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.incoming.port)
    async with asyncio.timeout(30):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    for _, each in (*silent, (reader, writer)):
        each.close()
    await eventually(lambda: not scene.incoming._handshakes)
    assert await scene.dial(Header("mig-1", "data").encode()) == b"ping"


@pytest.mark.parametrize("scene", [Limits(handshake_seconds=0.1)], indirect=True)
async def test_slow_handshake_is_closed(scene: Scene) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.incoming.port)
    async with asyncio.timeout(8):  # less than the default
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
    await eventually(lambda: not scene.incoming._handshakes)


@pytest.mark.parametrize("scene", [Limits(header_seconds=0.1, last_seconds=0.2)], indirect=True)
async def test_connection_without_a_timely_header_is_closed(scene: Scene) -> None:
    scene.expect()
    reader, writer = await scene.connect()
    writer.write(b"kubevirt-relay/1 ")
    async with asyncio.timeout(8):  # less than the default
        assert await reader.read() == b""
    writer.close()
    await eventually(lambda: not scene.incoming._all)


async def dialled(directory: int, path: str) -> socket.socket:
    while True:
        try:
            return places.connect(directory, path)
        except BlockingIOError:
            await asyncio.sleep(0.01)


async def hangs_up(link: socket.socket) -> bool:
    try:
        return await within(1, asyncio.get_running_loop().sock_recv(link, 1)) == b""
    except TimeoutError:
        return False


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
    scene.expect()
    relay = scene.relay()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(relay.run())
        await relay.ready.wait()
        await exchange(scene.root, layout.MIGRATION_DATA_SOCKET)
        task.cancel()


UNTRUSTED = {
    "a third node": lambda authority: authority.node("n3"),
    "the target itself": lambda authority: authority.node("n2"),
    "virt-api": lambda authority: authority.virt_api(),
    "the key that all nodes shared": lambda authority: authority.shared(),
    "two nodes at once": lambda authority: authority.node("n", dns_names=("n.virt-handler", "n3.virt-handler")),
    "a node and an address": lambda authority: authority.node("n", ip_addresses=("127.0.0.1",)),
    "a name below another domain": lambda authority: authority.node("n", dns_names=("n.virt-handler.example",)),
    "no name": lambda authority: authority.node("n", dns_names=()),
    "the name under another common name": lambda authority: authority.node("n", common_name="virt-api"),
}
"""From our authority, but not the source node's."""


@pytest.mark.parametrize("untrusted", UNTRUSTED)
async def test_only_the_source_node_gets_a_relay_or_releases(scene: Scene, untrusted: str) -> None:
    files = UNTRUSTED[untrusted](scene.authority)
    scene.expect()

    assert await scene.dial(Header("mig-1", "libvirt").encode(), files) == b""
    assert await scene.dial(Header("mig-1", "data").encode(), files) == b""
    assert await scene.dial(Release("mig-1").encode(), files) == b""

    assert (scene.seen, scene.released) == ([], [])
    assert await scene.dial(Header("mig-1", "data").encode()) == b"ping"


@pytest.mark.parametrize("node", ["n3", "n", "virt-api", "N2", "*", ""])
async def test_address_of_another_node_gets_no_guest_data(scene: Scene, node: str) -> None:
    """The relay at the address belongs to n2, whatever the Migration says."""
    scene.expect()
    with pytest.raises((OSError, ValueError)):
        await scene.relay(node).release(paused=False)

    assert (scene.seen, scene.released) == ([], [])
    await scene.relay("n2").release(paused=False)
    assert scene.released == [False]


@pytest.mark.parametrize("untrusted", sorted(set(UNTRUSTED) - {"the target itself"}))
async def test_server_that_is_not_the_target_gets_no_guest_data(scene: Scene, untrusted: str) -> None:
    heard = b""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        heard += await reader.read(100)
        writer.write(b"ok\n")
        writer.close()

    tls = ServerTls(UNTRUSTED[untrusted](scene.authority), clients=ssl.CERT_REQUIRED)
    server = await asyncio.start_server(listen, "127.0.0.1", 0, ssl=tls.context)
    destination = Destination("n2", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    relay = Outgoing("mig-1", "source", destination, ClientTls(scene.source), scene.trust.node_of, scene.root)
    with pytest.raises(OSError, match=r"(?i)certificate|mismatch|refused"):
        await relay.release(paused=False)
    server.close()

    assert heard == b""


async def test_revoked_node_is_refused_both_ways_until_pardoned(scene: Scene) -> None:
    scene.expect()
    await scene.operator.revoke("n")
    await eventually(lambda: scene.trust.revocations.is_revoked("n"))
    assert await scene.dial(Header("mig-1", "data").encode()) == b""
    await scene.operator.pardon("n")
    await eventually(lambda: not scene.trust.revocations.is_revoked("n"))
    assert await scene.dial(Header("mig-1", "data").encode()) == b"ping"

    await scene.operator.revoke("n2")
    await eventually(lambda: scene.trust.revocations.is_revoked("n2"))
    with pytest.raises(ConnectionRefusedError, match="n2 is revoked"):
        await scene.relay().release(paused=False)
    assert scene.released == []


async def test_revocation_time_affects_only_earlier_certificates(scene: Scene) -> None:
    scene.expect()
    await scene.operator.revoke("n", "2126-01-01T00:00:00Z")
    await eventually(lambda: "n" in scene.trust.revocations.nodes)
    assert await scene.dial(Header("mig-1", "data").encode()) == b""
    await scene.operator.revoke("n", "2020-01-01T00:00:00Z")
    await eventually(lambda: scene.trust.revocations.nodes["n"] is not None and scene.trust.revocations.nodes["n"].year == 2020)
    assert await scene.dial(Header("mig-1", "data").encode()) == b"ping"


async def test_open_relays_of_a_node_end_when_it_is_revoked(scene: Scene) -> None:
    scene.expect()
    scene.trust.subscribe(scene.incoming.verify_again)
    reader, writer = await scene.connect()
    writer.write(Header("mig-1", "data").encode() + b"ping")
    assert await reader.readexactly(4) == b"ping"

    await scene.operator.revoke("n3")
    await asyncio.sleep(0.1)
    writer.write(b"pong")
    assert await reader.readexactly(4) == b"pong"
    await scene.operator.revoke("n")
    async with asyncio.timeout(30):
        with contextlib.suppress(OSError):
            assert await reader.read(4) == b""
    writer.close()


async def test_open_relays_to_a_node_end_when_it_is_revoked(scene: Scene) -> None:
    run_directory(scene.root, "source")
    scene.expect()
    relay = scene.relay()
    scene.trust.subscribe(relay.verify_again)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(relay.run())
        await relay.ready.wait()
        with places.run_directory("source", scene.root) as directory:
            reader, writer = await asyncio.open_unix_connection(sock=places.connect(directory, layout.MIGRATION_DATA_SOCKET))
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"ping"
        await scene.operator.revoke("n2")
        async with asyncio.timeout(30):
            assert await reader.read(4) == b""
        writer.close()
        task.cancel()
