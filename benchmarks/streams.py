"""Memory of virt-api and virt-handler during floods of streams with one side that does not read; one JSON object per line.

    python -m benchmarks.streams [--streams 64] [--seconds 8]

The results: resident MiB of both before and after, and the maximum per stream, without kernel buffers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import uvloop
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.places import layout, names, streams
from apiserver.client.rest import Client
from apiserver.registry.generic.strategy import Connect, Destination
from apiserver.registry.virt.migrations import MigrationStrategy
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy
from apiserver.server import options, running
from apiserver.server.running import Kinds
from certs.reloading import ClientTls, Files, ServerTls
from handler.streams.limits import Limits
from handler.streams.server import Server, Target
from tests.cluster import processes
from tests.component.handler.tls import Authority
from tests.fakes.launcher import run_directory
from tests.ports import free_port

NAMES: Final = ("virt-api", "virt-handler")
NODE: Final = "node1"
POD: Final = "pod-1"
MACHINE: Final = {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": "testvm"}, "spec": {"domain": {}}}
PATH: Final = "/apis/kubevirt.io/v1alpha1/namespaces/default/virtualmachines"


class Direct(Connect):
    """virt-api's stream that connects to one virt-handler for every machine."""

    subprotocols: ClassVar[tuple[str, ...]] = (streams.SUBPROTOCOL,)
    ping_seconds: ClassVar[float] = streams.PING_SECONDS
    holder_header: ClassVar[str] = streams.HOLDER_HEADER

    def __init__(self, port: int, own: Files) -> None:
        self._port = port
        self._tls = ClientTls(own).context

    async def locate(self, obj: Object, query: Mapping[str, str]) -> Destination:
        """Return the Destination: URL of virt-handler's stream, its server name, and TLS context."""
        path = streams.handler_path("default", "testvm", obj["metadata"]["uid"], self._stream(query))
        return Destination(f"https://127.0.0.1:{self._port}{path}", names.handler_server_name(NODE), self._tls)

    def _stream(self, query: Mapping[str, str]) -> str:
        del query
        return "console"


async def serve_api(own: Files, port: int, subresource: str, stream: Connect) -> None:
    """Serve the stream ``subresource`` of machines with virt-api, without limits of streams; ``own``: its certificate's files."""

    def kinds(_: Client | None) -> Kinds:
        return Kinds((VirtualMachineStrategy({subresource: stream}), MigrationStrategy()))

    given = options.parse(
        [
            "--bind-address=127.0.0.1", f"--secure-port={port}", f"--tls-cert-file={own.certificate}", f"--tls-private-key-file={own.key}",
            "--storage=memory", "--authentication-skip-lookup", "--authorization-mode=AlwaysAllow", "--shutdown-delay-duration=0s",
            "--max-streams=0", "--max-streams-per-user=0", "--max-streams-per-user-and-object=0",
            f"--client-ca-file={own.authorities}",
        ]
    )  # fmt: skip
    await running.run(given, kinds)


async def serve_handler(root: Path, port: int) -> None:
    tls = ServerTls(Files.in_directory(root / "virt-handler"), clients=ssl.CERT_REQUIRED)
    await Server(lambda *_: Target(POD), tls, host="127.0.0.1", port=port, kubelet=root, limits=Limits(0, 0, 0)).run()


class Guests:
    """The guests behind the pod's console socket, which read each connection, flood it, or neither."""

    def __init__(self) -> None:
        self.reading = True
        self.printing = b""
        self._writers: list[asyncio.StreamWriter] = []

    def power_off(self) -> None:
        """Abort every connection of the guests."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Act as one connection's guest: print, read, or neither, as this object's fields say."""
        self._writers.append(writer)
        with contextlib.suppress(OSError, RuntimeError):  # uvloop raises this for an aborted transport
            if not self.reading:
                writer.transport.pause_reading()  # type: ignore[attr-defined]  # transports of sockets have it
                while not self.printing:
                    await asyncio.sleep(1)
            while self.printing:
                writer.write(self.printing)
                await writer.drain()
            while await reader.read(1 << 16):
                pass
        writer.close()


@dataclass(frozen=True)
class Scene:
    """Running virt-api and virt-handler (``pids``), the clients' URL and TLS, and the guests."""

    guests: Guests
    url: str
    tls: ssl.SSLContext
    pids: tuple[int, int]


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="streams") as name:
        root, guests = Path(name), Guests()
        authority = Authority(root)
        for each, files in zip(NAMES, (authority.virt_api(), authority.node(NODE)), strict=True):
            (root / each).symlink_to(files.certificate.parent)
        console = run_directory(root, POD) / layout.CONSOLE_SOCKET
        ports = {each: free_port() for each in NAMES}
        async with AsyncExitStack() as stack:
            server = await asyncio.start_unix_server(guests.serve, console, limit=1 << 16)
            stack.callback(server.close)
            pids = []
            for each in NAMES:
                arguments = ["-m", "benchmarks.streams", "--role", each, "--root", name, "--ports", *(str(ports[one]) for one in NAMES)]
                process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=asyncio.subprocess.DEVNULL)
                stack.push_async_callback(process.wait)
                stack.callback(process.kill)
                pids.append(process.pid)
            tls = ssl.create_default_context(cafile=str(root / "virt-api/ca.crt"))  # clients show no certificate
            await ready(ports["virt-api"], tls)
            await ready(ports["virt-handler"], tls)
            await create(ports["virt-api"], tls)
            yield Scene(guests, f"wss://127.0.0.1:{ports['virt-api']}{PATH}/testvm/console", tls, (pids[0], pids[1]))


async def ready(port: int, tls: ssl.SSLContext | None = None) -> None:
    name = "virt-api" if tls is not None else None
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
            except ssl.SSLError:
                return
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


async def create(port: int, tls: ssl.SSLContext) -> None:
    body = json.dumps(MACHINE).encode()
    kind = "Content-Type: application/json"
    fields = (f"POST {PATH} HTTP/1.1", "Host: virt-api", kind, f"Content-Length: {len(body)}", "Connection: close")
    head = "\r\n".join((*fields, "", ""))
    async with asyncio.timeout(60):
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="virt-api")
            writer.write(head.encode() + body)
            answer = await reader.read()
            writer.close()
            if answer.startswith(b"HTTP/1.1 201"):
                return
            await asyncio.sleep(0.2)


Flood = Callable[[ClientConnection], Awaitable[None]]


async def typed(socket: ClientConnection, message: bytes) -> None:
    while True:
        await socket.send(message)
        await asyncio.sleep(0)  # otherwise a stream with room would block the event loop


async def nothing(socket: ClientConnection) -> None:
    del socket
    await asyncio.get_running_loop().create_future()


FLOODS: Final[dict[str, tuple[bytes, Flood]]] = {
    "none: what a stream takes by being open": (b"", nothing),
    "the client floods with long messages, the guest does not read": (b"", lambda socket: typed(socket, b"x" * (64 << 10))),
    "the client floods with keys, the guest does not read": (b"", lambda socket: typed(socket, b"x")),
    "the guest floods, the client does not read": (b"x" * (64 << 10), nothing),
}


async def measure(what: str, count: int, seconds: float) -> None:
    """Open ``count`` streams, run flood ``what`` on each for at most ``seconds``; print both servers' memory before and at most."""
    printing, flood = FLOODS[what]
    async with scene() as place, AsyncExitStack() as stack:
        place.guests.reading, place.guests.printing = False, printing
        before = [processes.resident_kib(pid) / 1024 for pid in place.pids]
        most = list(before)
        opened = [
            await stack.enter_async_context(
                websocket(
                    place.url, ssl=place.tls, server_hostname="virt-api", subprotocols=[Subprotocol(streams.SUBPROTOCOL)], compression=None,
                    ping_interval=None, max_queue=1, close_timeout=0.1, proxy=None,
                )
            )
            for _ in range(count)
        ]  # fmt: skip
        with contextlib.suppress(TimeoutError, ConnectionClosed):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
                for socket in opened:
                    tasks.create_task(ended(flood(socket)))
                while True:
                    most = [max(one, processes.resident_kib(pid) / 1024) for one, pid in zip(most, place.pids, strict=True)]
                    await asyncio.sleep(0.1)
        figures = {
            name: {"before_mib": round(first, 1), "most_mib": round(last, 1), "kib_a_stream": round((last - first) * 1024 / count)}
            for name, first, last in zip(NAMES, before, most, strict=True)
        }
        print(json.dumps({"flood": what, "streams": count, **figures}), flush=True)
        for socket in opened:
            socket.transport.abort()
        place.guests.power_off()
        await asyncio.sleep(0.1)


async def ended(work: Awaitable[None]) -> None:
    with contextlib.suppress(ConnectionClosed):
        await work


async def measure_all(count: int, seconds: float) -> None:
    for what in FLOODS:
        await measure(what, count, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--streams", type=int, default=64, help="streams at once")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long each flood lasts")
    parser.add_argument("--role", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ports", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "virt-api":
        own = Files.in_directory(given.root / "virt-api")
        uvloop.run(serve_api(own, given.ports[0], "console", Direct(given.ports[1], own)))
    elif given.role == "virt-handler":
        uvloop.run(serve_handler(given.root, given.ports[1]))
    else:
        os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1]))
        uvloop.run(measure_all(given.streams, given.seconds))


if __name__ == "__main__":
    main()
