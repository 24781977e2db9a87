from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import signal
import socket
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from apiserver.apis.virt.places import layout
from certs import files as publishing
from certs.reloading import ClientTls, Files
from handler.pods import places
from handler.relays import copying, header, program
from handler.relays.header import TARGET_SOCKETS, Header
from handler.relays.incoming import Expected, Limits
from handler.relays.outgoing import Outgoing
from handler.relays.process import USER_ID, RelayProcess
from tests.component.handler.test_relays import Scene
from tests.component.handler.tls import Authority, trusting
from tests.component.handler.world import eventually
from tests.fakes.launcher import run_directory

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
MIB = 1 << 20


@pytest.fixture
async def scene(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    authority = Authority(tmp_path / "certs")
    async with trusting(tmp_path, authority) as (trust, operator):
        made = Scene(tmp_path, authority, trust, operator, getattr(request, "param", Limits(last_seconds=0.2)))
        async with made.target():
            yield made


@asynccontextmanager
async def relayed(scene: Scene, process: RelayProcess | None = None) -> AsyncIterator[Outgoing]:
    run_directory(scene.root, "source")
    scene.expect()
    relay = scene.relay(process=process)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(relay.run())
        await relay.ready.wait()
        yield relay
        task.cancel()


async def dialled(scene: Scene) -> Streams:
    with places.run_directory("source", scene.root) as directory:
        reader, writer = await asyncio.open_unix_connection(sock=places.connect(directory, layout.MIGRATION_DATA_SOCKET))
    writer.write(b"ping")
    async with asyncio.timeout(20):
        assert await reader.readexactly(4) == b"ping"
    return reader, writer


async def is_over(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(20):
        with contextlib.suppress(OSError):
            return await reader.read(1) == b""
    return True


def pid_of(process: RelayProcess) -> int:
    assert process.pid is not None
    return process.pid


def at_target(scene: Scene, migration: str = "mig-1") -> RelayProcess:
    return scene.incoming._processes.running[migration]


@pytest.mark.parametrize("side", ["source", "target"])
async def test_killed_relay_process_ends_connections_and_is_replaced(scene: Scene, side: str) -> None:
    async with relayed(scene) as relay:
        reader, writer = await dialled(scene)
        process = relay._process if side == "source" else at_target(scene)
        first = pid_of(process)
        os.kill(first, signal.SIGKILL)
        assert await is_over(reader)
        writer.close()
        await eventually(lambda: not scene.echoing)
        await eventually(lambda: not relay._open and not scene.incoming._connections)

        reader, writer = await dialled(scene)
        assert pid_of(process) != first
        writer.close()


async def test_data_sent_before_a_hang_up_arrive(scene: Scene) -> None:
    heard = bytearray()
    async with relayed(scene):
        with places.run_directory("target", scene.root) as directory:
            path = f"/proc/self/fd/{directory}/{layout.MIGRATION_DATA_SOCKET}"
            Path(path).unlink()
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
        listener.listen()
        listener.setblocking(False)
        with places.run_directory("source", scene.root) as directory:
            reader, writer = await asyncio.open_unix_connection(sock=places.connect(directory, layout.MIGRATION_DATA_SOCKET))
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(20):
            link, _ = await loop.sock_accept(listener)
            said = os.urandom(3 * MIB)
            writer.write(said)

            async def listen() -> None:
                while data := await loop.sock_recv(link, MIB):
                    heard.extend(data)

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(listen())
                await writer.drain()
                writer.close()
        link.close()
        listener.close()
        del reader
    assert bytes(heard) == said


async def test_stalled_target_blocks_the_source_in_bounded_memory(scene: Scene) -> None:
    async with relayed(scene) as relay:
        with places.run_directory("target", scene.root) as directory:
            path = f"/proc/self/fd/{directory}/{layout.MIGRATION_DATA_SOCKET}"
            Path(path).unlink()
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
        listener.listen()
        listener.setblocking(False)
        with places.run_directory("source", scene.root) as directory:
            pod = places.connect(directory, layout.MIGRATION_DATA_SOCKET)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(20):
            link, _ = await loop.sock_accept(listener)
        before = resident(pid_of(relay._process)) + resident(pid_of(at_target(scene)))
        sent, chunk = 0, os.urandom(MIB)
        with contextlib.suppress(TimeoutError):
            while sent < 512 * MIB:
                async with asyncio.timeout(1):  # no byte is read for this long
                    await loop.sock_sendall(pod, chunk[: 64 << 10])
                sent += 64 << 10
        assert sent < 64 * MIB
        assert resident(pid_of(relay._process)) + resident(pid_of(at_target(scene))) < before + 8 * MIB
        got = 0
        async with asyncio.timeout(30):
            while got < sent:
                got += len(await loop.sock_recv(link, MIB))
        for each in (pod, link, listener):
            each.close()


async def test_target_holds_all_unread_connections_within_its_memory(scene: Scene) -> None:
    """A migration's connections send as much as they can from both ends. One more still fits."""
    target, source = RelayProcess(), RelayProcess()
    of_each = len(TARGET_SOCKETS) * copying.MAX_CONNECTIONS
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as leading:
        for each in (target, source):
            stack.push_async_callback(each.end)
        made = [await led(stack, leading, scene, source, target) for _ in range(of_each)]
        rounds_of_silence = 0
        while rounds_of_silence < 3:
            rounds_of_silence = 0 if sum(said(pod) for pods, _ in made for pod in pods) else rounds_of_silence + 1
            await asyncio.sleep(0.1)
        (one, other), another = await led(stack, leading, scene, source, target)
        for sender, receiver in ((one, other), (other, one)):
            sender.send(b"ping")
            async with asyncio.timeout(20):
                assert await asyncio.get_running_loop().sock_recv(receiver, 5) == b"ping"
        made.append(([], another))
        assert not [ends for _, ends in made if any(end.done() for end in ends)]
        assert data_bytes(pid_of(target)) < 0.8 * program.MAX_DATA_BYTES
        for end in itertools.chain.from_iterable(ends for _, ends in made):
            end.cancel()


HOSTILE: Final = 5
"""Migrations of one tenant, together more than the memory of one relay process."""


async def test_one_tenants_unread_connections_stop_no_other_migration(scene: Scene) -> None:
    """Each hostile migration opens all its connections; its target's pod reads nothing."""
    scene.expect()
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as leading:
        stack.enter_context(silent_pod(scene))
        flooded = [each for number in range(HOSTILE) for each in await flood(stack, leading, scene, f"hostile-{number}")]
        while sum(said(pod) for pod, _ in flooded):
            await asyncio.sleep(0.3)
        assert await scene.dial(Header("mig-1", "libvirt").encode(), protocol=header.protocol("mig-1")) == b"ping"
        hostile = [each for wanted, each in scene.incoming._connections.items() if wanted.migration_uid != "mig-1"]
        assert sum(map(len, hostile)) == len(flooded)
        for _, end in flooded:
            end.cancel()


@contextlib.contextmanager
def silent_pod(scene: Scene) -> Iterator[None]:
    run = os.open(run_directory(scene.root, "silent"), os.O_PATH)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, run)
        for path in map(Path, TARGET_SOCKETS.values()):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path.parent, dir_fd=run)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(f"/proc/self/fd/{run}/{path}")
            listener.listen(1024)
        yield


async def flood(
    stack: contextlib.AsyncExitStack, leading: asyncio.TaskGroup, scene: Scene, uid: str
) -> list[tuple[socket.socket, asyncio.Task[str]]]:
    scene.incoming.expect(uid, Expected("silent", "n", scene.release))
    process, pods = RelayProcess(), []
    stack.push_async_callback(process.end)
    for channel in itertools.chain.from_iterable(itertools.repeat(each, copying.MAX_CONNECTIONS) for each in TARGET_SOCKETS):
        link = socket.create_connection(("127.0.0.1", scene.incoming.port))
        link.settimeout(0)
        material = ClientTls(scene.source).material
        connection = await stack.enter_async_context(process.connection(link, material, "n2.virt-handler", header.protocol(uid)))
        await connection.shaken()
        pod, handed_over = socket.socketpair()
        for each in (pod, handed_over):
            each.settimeout(0)
        end = leading.create_task(connection.lead(handed_over, Header(uid, channel).encode()))
        pods.append((stack.enter_context(pod), end))
    return pods


async def led(
    stack: contextlib.AsyncExitStack, leading: asyncio.TaskGroup, scene: Scene, source: RelayProcess, target: RelayProcess
) -> tuple[list[socket.socket], list[asyncio.Task[str]]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dialled = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    for link in (dialled, accepted):
        link.settimeout(0)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            link.setsockopt(socket.SOL_SOCKET, option, 64 << 10)
    ends = [
        await stack.enter_async_context(source.connection(dialled, ClientTls(scene.source).material, "n2.virt-handler")),
        await stack.enter_async_context(target.connection(accepted, ClientTls(scene.files).material)),
    ]
    for end in ends:
        await end.shaken()
    pods, waiting = [], []
    for end in ends:
        pod, handed_over = socket.socketpair()
        pods.append(stack.enter_context(pod))
        for each in (pod, handed_over):
            each.settimeout(0)
        waiting.append(leading.create_task(end.lead(handed_over)))
    await asyncio.sleep(0)  # both have begun
    return pods, waiting


def said(pod: socket.socket) -> int:
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            count += pod.send(bytes(64 << 10))
    return count


def test_peer_that_takes_no_answers_is_disconnected(tmp_path: Path) -> None:
    """TLS 1.3 allows any number of requests for new keys."""
    authority = Authority(tmp_path)
    one, other = socket.socketpair()
    with one, other:
        sides = shaken(authority, one, other)
        sides[0].write(bytes(program.CHUNK_BYTES))
        sides[0].fill()
        sides[0].write(bytes(MIB))
        with pytest.raises(program.Ended, match="does not read answers"):
            sides[0].fill()


def test_data_read_before_a_connection_ends_arrive(tmp_path: Path) -> None:
    """At the end of a migration or of virt-handler, unsent bytes wait a while for a reader."""
    authority, said = Authority(tmp_path), os.urandom(4 * MIB)
    one, other = socket.socketpair()
    with one, other:
        sides = shaken(authority, one, other)
        sides[0].write(said)
        sides[0].flush()
        assert not sides[0].is_sent
        ending = threading.Thread(target=program._finish, args=(sides[0],))
        ending.start()
        heard, buffer = bytearray(), memoryview(bytearray(MIB))
        with contextlib.suppress(program.Ended):
            while select.select([other], [], [], 20)[0]:
                sides[1].fill()
                while count := sides[1].read(buffer):
                    heard.extend(buffer[:count])
        ending.join()
    assert bytes(heard) == said


def shaken(authority: Authority, one: socket.socket, other: socket.socket) -> list[program.Tls]:
    for link in (one, other):
        link.settimeout(0)
    sides = [program.Tls(link, context(authority, name), name) for link, name in ((one, "n2.virt-handler"), (other, None))]
    done: set[int] = set()
    while len(done) < 2:
        for number, tls in enumerate(sides):
            tls.fill()
            if tls.handshake():
                done.add(number)
            tls.flush()
    return sides


def context(authority: Authority, server_name: str | None) -> ssl.SSLContext:
    files = authority.node("n" if server_name else "n2")
    material = ClientTls(files).material
    order = {name: getattr(material, name).decode() for name in ("certificate", "key", "authorities")}
    return program.context({"server_name": server_name, **order})


def resident(pid: int) -> int:
    return memory(pid, "VmRSS")


def data_bytes(pid: int) -> int:
    return memory(pid, "VmData")


def memory(pid: int, line: str) -> int:
    found = next(each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith(f"{line}:"))
    return int(found.split()[1]) << 10


@pytest.mark.parametrize("scene", [Limits(handshakes_per_address=3, handshake_seconds=60, last_seconds=0.2)], indirect=True)
async def test_silent_peers_are_limited_and_delay_no_other(scene: Scene) -> None:
    scene.expect()
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", scene.incoming.port))) for _ in range(2)]
        await eventually(lambda: scene.incoming._handshakes.total() == 2)
        assert await scene.dial(Header("mig-1", "data").encode()) == b"ping"
        await eventually(lambda: scene.incoming._handshakes.total() == 2)
        silent += [stack.enter_context(socket.create_connection(("127.0.0.1", scene.incoming.port))) for _ in range(2)]
        for each in silent:
            each.setblocking(False)
        async with asyncio.timeout(30):
            assert await asyncio.get_running_loop().sock_recv(silent[3], 1) == b""
        for each in silent:
            each.close()
        await eventually(lambda: not scene.incoming._handshakes)
    assert await scene.dial(Header("mig-1", "data").encode()) == b"ping"


async def test_renewed_certificate_is_used_and_connections_stay(scene: Scene) -> None:
    async with relayed(scene):
        reader, writer = await dialled(scene)
        before = await shown(scene)
        renew(scene.files, scene.authority.node("n2"))
        assert scene.incoming._tls.refresh()
        assert await shown(scene) != before
        writer.write(b"pong")
        async with asyncio.timeout(20):
            assert await reader.readexactly(4) == b"pong"
        writer.close()


def renew(files: Files, by: Files) -> None:
    publishing.publish(
        files.certificate.parent, {name: (by.certificate.parent / name).read_bytes() for name in ("tls.crt", "tls.key", "ca.crt")}
    )


async def shown(scene: Scene) -> str:
    _, writer = await scene.connect()
    try:
        return str(writer.get_extra_info("peercert")["serialNumber"])
    finally:
        writer.close()


async def test_certificate_of_another_authority_is_refused_both_ways(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.expect()
    other = Authority(scene.root / "other").node("n")
    theirs = Files(other.certificate, other.key, scene.source.authorities)
    with contextlib.suppress(OSError):
        assert await scene.dial(Header("mig-1", "data").encode(), theirs) == b""
    assert scene.seen == []

    run_directory(scene.root, "source")
    believing = Files(scene.source.certificate, scene.source.key, other.authorities)
    relay = scene.relay(files=believing)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(relay.run())
        await relay.ready.wait()
        with places.run_directory("source", scene.root) as directory:
            reader, writer = await asyncio.open_unix_connection(sock=places.connect(directory, layout.MIGRATION_DATA_SOCKET))
        writer.write(b"a guest's memory")
        assert await is_over(reader)
        writer.close()
        task.cancel()
    assert scene.seen == []
    assert "certificate verify failed" in caplog.text  # by OpenSSL, before the check of the name


async def test_an_address_that_is_not_of_the_target_node_gets_no_relay(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Also for the release, where virt-handler itself speaks TLS."""
    run_directory(scene.root, "source")
    scene.expect()
    relay = scene.relay("n3")
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(relay.run())
        await relay.ready.wait()
        with places.run_directory("source", scene.root) as directory:
            reader, writer = await asyncio.open_unix_connection(sock=places.connect(directory, layout.MIGRATION_DATA_SOCKET))
        writer.write(b"a guest's memory")
        assert await is_over(reader)
        writer.close()
        task.cancel()
    assert scene.seen == []
    assert "Hostname mismatch" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root has no other user's rights to take")
async def test_relay_process_is_unprivileged_and_hides_its_key(scene: Scene) -> None:
    async with relayed(scene) as relay:
        _, writer = await dialled(scene)
        process = Path(f"/proc/{pid_of(relay._process)}")
        fields = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
        words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        links = [(process / "fd" / name.name).readlink() for name in (process / "fd").iterdir()]
        limits = (process / "limits").read_text()
        writer.close()

    user = str(USER_ID)
    assert fields["Uid"].split() == fields["Gid"].split() == [user] * 4
    assert {int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert fields["NoNewPrivs"] == "1"
    assert fields["Groups"].strip() == ""
    assert b"PRIVATE KEY" not in words
    assert not [link for link in links if "memfd" in str(link) or "pods" in str(link)]
    assert next(line for line in limits.splitlines() if line.startswith("Max core file size")).split()[4:6] == ["0", "0"]


PARENT = """
import asyncio, socket, sys
from pathlib import Path
from certs.reloading import ClientTls, Files
from handler.relays.process import RelayProcess

async def main():
    process, link = RelayProcess(), socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    link.settimeout(0)
    async with process.connection(link, ClientTls(Files.in_directory(Path(sys.argv[2]))).material, "n2.virt-handler") as connection:
        await connection.shaken()
        print(process.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_relay_process_ends_with_a_killed_virt_handler(scene: Scene) -> None:
    root = Path(program.__file__).parents[2]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(scene.incoming.port), str(scene.source.certificate.parent),
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(30):
        pid = int(await process.stdout.readline())
    descriptor = os.pidfd_open(pid)
    try:
        await eventually(lambda: len(scene.incoming._all) == 1)
        process.kill()
        await process.wait()
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, ended.set)
        async with asyncio.timeout(20):
            await ended.wait()
        asyncio.get_running_loop().remove_reader(descriptor)
        await eventually(lambda: not scene.incoming._all)
    finally:
        os.close(descriptor)


async def test_relay_that_cannot_start_its_process_ends_with_a_message(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    async with relayed(scene, RelayProcess("/nonexistent/python")):
        with places.run_directory("source", scene.root) as directory:
            reader, writer = await asyncio.open_unix_connection(sock=places.connect(directory, layout.MIGRATION_DATA_SOCKET))
        assert await is_over(reader)
        writer.close()
    assert "No such file" in caplog.text
