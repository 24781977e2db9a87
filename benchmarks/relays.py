"""Rate and cost of live migrations' bytes from pod to pod, and delays of other work.

    python -m benchmarks.relays [--mib 2048] [--migrations 1,5] [--output build/bench/relays.json]

Two processes are virt-handlers of two nodes; this process is QEMU at both ends, through the pods' unix sockets. Needs root, because the
sockets get the pods' user as owner. Only the ratios to TLS alone and TCP alone are comparable.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import uvloop

from apiserver.apis.virt.places import layout, names
from apiserver.apis.virt.rights.trust import Revocations
from certs import peers
from certs.reloading import ClientTls, Files, ServerTls
from handler.identity import trust
from handler.pods import places
from handler.relays.incoming import Expected, Incoming
from handler.relays.outgoing import Destination, Outgoing
from tests.cluster import processes
from tests.component.handler.tls import Authority
from tests.fakes.launcher import run_directory

NODES: Final = {"source": "node1", "target": "node2"}
TICK_SECONDS: Final = 0.005
CHUNK_BYTES: Final = 1 << 20
GIB: Final = 1 << 30


def node_of(transport: asyncio.BaseTransport | None) -> str:
    """Return the node that the peer's certificate names; no certificate is revoked. Raises Untrusted."""
    return trust.node_of(peers.presented(transport), Revocations())


async def serve_target(root: Path, migrations: int) -> None:
    tls = ServerTls(Files.in_directory(root / "target"), clients=ssl.CERT_REQUIRED)
    incoming = Incoming(tls, node_of, host="127.0.0.1", port=0, kubelet=root)

    async def released(_paused: bool) -> None:  # noqa: FBT001 - as the listener calls it
        return

    for number in range(migrations):
        incoming.expect(f"mig-{number}", Expected(f"target-{number}", NODES["source"], released))
    async with asyncio.TaskGroup() as tasks:
        parts = [tasks.create_task(incoming.run())]
        await incoming.ready.wait()
        await answer({"port": incoming.port})
        for part in parts:
            part.cancel()


async def serve_source(root: Path, migrations: int, port: int) -> None:
    tls = ClientTls(Files.in_directory(root / "source"))
    destination = Destination(NODES["target"], f"127.0.0.1:{port}")
    relays = [Outgoing(f"mig-{number}", f"source-{number}", destination, tls, node_of, root) for number in range(migrations)]
    async with asyncio.TaskGroup() as tasks:
        parts = [tasks.create_task(relay.run()) for relay in relays]
        for relay in relays:
            await relay.ready.wait()
        await answer({})
        for part in parts:
            part.cancel()


async def answer(first: dict[str, Any]) -> None:
    """Print ``first``; then measure a timer's delays from each odd input line to the next, and print them."""
    loop, late = asyncio.get_running_loop(), list[float]()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print(json.dumps(first), flush=True)

    async def tick() -> None:
        while True:
            due = time.perf_counter() + TICK_SECONDS  # uvloop's clock has a resolution of milliseconds
            await asyncio.sleep(TICK_SECONDS)
            late.append(time.perf_counter() - due)

    async with asyncio.TaskGroup() as tasks:
        ticking = tasks.create_task(tick())
        while await lines.readline():
            late.clear()
            await lines.readline()
            print(json.dumps(lateness(late)), flush=True)
        ticking.cancel()


def lateness(late: list[float]) -> dict[str, float]:
    found = sorted(late) or [0.0]
    chosen = {"median": statistics.median(found), "p99": found[int(len(found) * 0.99)], "most": found[-1]}
    return {name: round(value * 1e3, 2) for name, value in chosen.items()}


def total(figure: Callable[[int], float], pid: int) -> float:
    found = 0.0
    with contextlib.suppress(OSError):
        found = figure(pid)
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += sum(total(figure, int(child)) for child in (task / "children").read_text().split())
    return found


class Side:
    """A process that acts as one node's virt-handler, controlled by lines of input and output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def said(self) -> dict[str, Any]:
        """Return the process's next output line, parsed as JSON; after its end, an object with ``error``."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        found: dict[str, Any] = json.loads(line or b'{"error": "the process ended"}')
        return found

    async def turn(self) -> None:
        """Tell the process to start or end a measurement: one input line."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        await self._process.stdin.drain()


@asynccontextmanager
async def side(role: str, root: Path, migrations: int, port: int = 0) -> AsyncIterator[Side]:
    arguments = ["-m", "benchmarks.relays", "--role", role, "--root", str(root), "--migrations", str(migrations), "--port", str(port)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe)
    try:
        yield Side(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


class Pods:
    """Acts as QEMU on both sides of every migration, with a thread for each."""

    def __init__(self, root: Path, migrations: int) -> None:
        self._root, self._migrations = root, migrations
        self._listeners: list[socket.socket] = []
        for number in range(migrations):
            run_directory(root, f"source-{number}")
            (run_directory(root, f"target-{number}") / "migration").mkdir()
            with places.run_directory(f"target-{number}", root) as directory:
                listener = socket.socket(socket.AF_UNIX)
                listener.bind(f"/proc/self/fd/{directory}/{layout.MIGRATION_DATA_SOCKET}")
            listener.listen()
            self._listeners.append(listener)

    def move(self, size: int) -> None:
        """Send ``size`` bytes in each migration at the same time; return when all have arrived."""
        threads = [threading.Thread(target=self._send, args=(number, size)) for number in range(self._migrations)]
        threads += [threading.Thread(target=receive, args=(listener, size)) for listener in self._listeners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send(self, number: int, size: int) -> None:
        with places.run_directory(f"source-{number}", self._root) as directory:
            link = places.connect(directory, layout.MIGRATION_DATA_SOCKET)
        link.settimeout(None)
        with link:
            send(link, size)


def send(link: socket.socket, size: int) -> None:
    """Send ``size`` random bytes, rounded down to whole chunks, and wait for an acknowledging byte. Raises OSError."""
    chunk = memoryview(os.urandom(CHUNK_BYTES))
    for _ in range(size // CHUNK_BYTES):
        link.sendall(chunk)
    link.recv(1)


def receive(listener: socket.socket, size: int, wrap: Callable[[socket.socket], socket.socket] = lambda link: link) -> None:
    """Accept one connection, receive ``size`` bytes, rounded down to whole chunks, or up to its end, and send a byte."""
    accepted, _ = listener.accept()
    with wrap(accepted) as link:
        buffer = memoryview(bytearray(CHUNK_BYTES))
        left = size // CHUNK_BYTES * CHUNK_BYTES
        while left and (count := link.recv_into(buffer)):
            left -= count
        link.send(b"x")


async def relayed(root: Path, migrations: int, mib: int) -> dict[str, Any]:
    size = (mib << 20) // migrations
    pods = Pods(root, migrations)
    async with side("target", root, migrations) as target, side("source", root, migrations, (await target.said())["port"]) as source:
        await source.said()
        await asyncio.to_thread(pods.move, CHUNK_BYTES)
        sides = {"source": source, "target": target}
        before = {name: total(processes.processor_seconds, each.pid) for name, each in sides.items()}
        for each in sides.values():
            await each.turn()
        began = time.perf_counter()
        await asyncio.to_thread(pods.move, size)
        seconds = time.perf_counter() - began
        used = {name: total(processes.processor_seconds, each.pid) - before[name] for name, each in sides.items()}
        memory = {name: total(processes.proportional_kib, each.pid) / 1024 for name, each in sides.items()}
        for each in sides.values():
            await each.turn()
        late = {name: await each.said() for name, each in sides.items()}
    moved = size // CHUNK_BYTES * CHUNK_BYTES * migrations
    return {
        "way": f"relay, {migrations} at once",
        "gbit_per_second": round(moved * 8 / seconds / 1e9, 2),
        "cpu_seconds_per_gib": {name: round(value / (moved / GIB), 2) for name, value in used.items()},
        "late_ms": late,
        "pss_mib": {name: round(value, 1) for name, value in memory.items()},
    }


def bare(root: Path, mib: int, *, encrypted: bool) -> dict[str, Any]:
    size = mib << 20
    listener = socket.create_server(("127.0.0.1", 0))
    with timed_child(lambda: receive_bare(listener, root, size, encrypted)) as child:
        link = socket.create_connection(listener.getsockname())
        if encrypted:
            context = ClientTls(Files.in_directory(root / "source")).context
            link = context.wrap_socket(link, server_hostname=names.handler_server_name(NODES["target"]))
        with link:
            began, used = time.perf_counter(), time.process_time()
            send(link, size)
            seconds, used = time.perf_counter() - began, time.process_time() - used
        cpu = {"source": used, "target": child()}
    return {
        "way": "TLS, bare" if encrypted else "TCP, bare",
        "gbit_per_second": round(size * 8 / seconds / 1e9, 2),
        "cpu_seconds_per_gib": {name: round(value / (size / GIB), 2) for name, value in cpu.items()},
    }


def receive_bare(listener: socket.socket, root: Path, size: int, encrypted: bool) -> None:  # noqa: FBT001 - of a child process
    tls = ServerTls(Files.in_directory(root / "target"), clients=ssl.CERT_REQUIRED).context
    receive(listener, size, lambda link: tls.wrap_socket(link, server_side=True) if encrypted else link)


@contextlib.contextmanager
def timed_child(work: Callable[[], None]) -> Iterator[Callable[[], float]]:
    """Run ``work`` in a child process; yield a function that waits for its end and returns its processor seconds."""
    context = multiprocessing.get_context("fork")
    used = context.Value("d", 0.0)

    def run() -> None:
        before = time.process_time()
        work()
        used.value = time.process_time() - before

    child = context.Process(target=run)
    child.start()

    def result() -> float:
        child.join()
        return float(used.value)

    yield result
    child.join()


def measure(migrations: list[int], mib: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def add(result: dict[str, Any]) -> None:
        found.append(result)
        print(json.dumps(result), flush=True)

    for count in migrations:
        with tempfile.TemporaryDirectory(prefix="relays") as name:
            root, authority = Path(name), Authority(Path(name) / "certs")
            for role, node in NODES.items():
                (root / role).symlink_to(authority.node(node).certificate.parent)
            add(asyncio.run(relayed(root, count, mib)))
            if count == migrations[0]:
                for encrypted in (True, False):
                    add(bare(root, mib, encrypted=encrypted))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relays", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mib", type=int, default=2048, help="MiB to move, by all migrations of a way together")
    parser.add_argument("--migrations", default="1,5", metavar="N,…", help="how many at once")
    parser.add_argument("--output", type=Path, default=Path("build/bench/relays.json"))
    parser.add_argument("--role", choices=NODES, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    migrations = [int(each) for each in given.migrations.split(",")]
    if given.role == "target":
        uvloop.run(serve_target(given.root, migrations[0]))
    elif given.role == "source":
        uvloop.run(serve_source(given.root, migrations[0], given.port))
    else:
        load = os.getloadavg()
        results = measure(migrations, given.mib)
        given.output.parent.mkdir(parents=True, exist_ok=True)
        machine = {"processors": os.cpu_count(), "openssl": ssl.OPENSSL_VERSION, "python": sys.version.split()[0], "load_before": load}
        given.output.write_text(json.dumps({"machine": machine, "mib": given.mib, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
