"""The rate of ``kubectl virt port-forward``, and the processor time of each hop; one JSON object per direction.

    python -m benchmarks.forwarding [--mib 256] [--rounds 3]

``make bench-devices`` measures with kube-apiserver.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import uvloop

from apiserver.apis.virt.places import streams
from apiserver.kubectl import portforward
from apiserver.kubectl.access import Access
from apiserver.registry.generic.strategy import QueryParameter
from benchmarks.streams import NODE, POD, Direct, create, ready, serve_api
from certs.reloading import Files, ServerTls
from handler.streams.limits import Limits
from handler.streams.server import Server, Target
from tests.cluster import processes
from tests.component.handler.tls import Authority
from tests.fakes.launcher import run_directory
from tests.ports import free_port

HOPS: Final = ("plugin", "virt-api", "virt-handler")
ROLES: Final = (*HOPS, "guest")
DIRECTIONS: Final = {"down": b"d", "up": b"u"}
_PIECE: Final = 256 << 10
_POD_ADDRESS: Final = "10.244.1.7"


class Forwarded(Direct):
    """virt-api's stream to a guest's TCP port, through one virt-handler."""

    segments: ClassVar[tuple[QueryParameter, ...]] = (QueryParameter("port", "integer", ""), QueryParameter("protocol", "string", ""))

    def _stream(self, query: Mapping[str, str]) -> str:
        return streams.Forward("tcp", int(query["port"])).stream


class NodeSocket(socket.socket):
    """A socket that connects to this machine instead of the pod's address."""

    def connect(self, address: tuple[str, int]) -> None:  # type: ignore[override]  # typeshed: of any family
        """Connect to the port of ``address`` on loopback, because the pod's address is not real."""
        super().connect(("127.0.0.1", address[1]))


@dataclass(frozen=True)
class Place:
    """Files and ports of all processes."""

    root: Path
    ports: Mapping[str, int]

    def arguments(self, role: str) -> list[str]:
        """Return Python's arguments for the process with this role."""
        ports = ",".join(f"{each}={port}" for each, port in self.ports.items())
        return ["-m", "benchmarks.forwarding", "--role", role, "--root", str(self.root), "--ports", ports]


async def serve_handler(place: Place) -> None:
    tls = ServerTls(Files.in_directory(place.root / "virt-handler"), clients=ssl.CERT_REQUIRED)
    target, limits, port = Target(POD, addresses=(_POD_ADDRESS,)), Limits(0, 0, 0), place.ports["virt-handler"]
    await Server(lambda *_: target, tls, host="127.0.0.1", port=port, kubelet=place.root, limits=limits, make_socket=NodeSocket).run()


async def serve_plugin(place: Place) -> None:
    own = Files.in_directory(place.root / "virt-api")
    tls = ssl.create_default_context(cafile=own.authorities)
    tls.load_cert_chain(own.certificate, own.key)  # as kube-apiserver, which gives virt-api larger reads

    async def load() -> Access:
        return Access(f"https://127.0.0.1:{place.ports['virt-api']}", "default", tls=tls, server_hostname="virt-api")

    port = portforward.parse(f"{place.ports['plugin']}:{place.ports['guest']}")
    await portforward.forward_all("testvm", load, [port], "127.0.0.1")


def serve_guest(port: int) -> None:
    """Act as the guest: each connection begins with its direction's letter and an eight-byte count of bytes to send or receive."""

    def one(link: socket.socket) -> None:
        with link:
            asked = link.recv(9, socket.MSG_WAITALL)
            count = int.from_bytes(asked[1:])
            if asked[:1] == DIRECTIONS["down"]:
                send(link, count)
            else:
                take(link, count)
                link.sendall(b".")

    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()


def send(link: socket.socket, count: int) -> None:
    piece = os.urandom(_PIECE)
    for _ in range(count // _PIECE):
        link.sendall(piece)


def take(link: socket.socket, count: int) -> None:
    room = memoryview(bytearray(_PIECE))
    while count:
        taken = link.recv_into(room)
        if not taken:
            raise ConnectionError(f"{count} bytes are missing")
        count -= taken


def moved(port: int, direction: str, count: int) -> float:
    """Move ``count`` bytes ``down`` from or ``up`` to :func:`serve_guest` through a local port; return the seconds."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        began = time.monotonic()
        link.sendall(DIRECTIONS[direction] + count.to_bytes(8))
        if direction == "down":
            take(link, count)
        else:
            send(link, count)
            take(link, 1)
        return time.monotonic() - began


@asynccontextmanager
async def hops() -> AsyncIterator[tuple[Place, Mapping[str, int]]]:
    with tempfile.TemporaryDirectory(prefix="forwarding") as name:
        place = Place(Path(name), {each: free_port() for each in ROLES})
        authority = Authority(place.root)
        for each, files in (("virt-api", authority.virt_api()), ("virt-handler", authority.node(NODE))):
            (place.root / each).symlink_to(files.certificate.parent)
        run_directory(place.root, POD)
        tls = ssl.create_default_context(cafile=str(place.root / "virt-api/ca.crt"))
        async with AsyncExitStack() as stack:
            pids = {}
            for each in ("guest", "virt-handler", "virt-api", "plugin"):
                process = await asyncio.create_subprocess_exec(sys.executable, *place.arguments(each), stdout=asyncio.subprocess.DEVNULL)
                stack.push_async_callback(process.wait)
                stack.callback(process.kill)
                pids[each] = process.pid
                if each == "virt-api":
                    await ready(place.ports[each], tls)
                    await create(place.ports[each], tls)
            await ready(place.ports["plugin"])
            yield place, pids


async def measure(mib: int, rounds: int, directions: Iterable[str]) -> None:
    async with hops() as (place, pids):
        for direction in directions:
            before = {each: processes.processor_seconds(pids[each]) for each in HOPS}
            seconds = [await asyncio.to_thread(moved, place.ports["plugin"], direction, mib << 20) for _ in range(rounds)]
            used = {each: round((processes.processor_seconds(pids[each]) - before[each]) * 1024 / mib / rounds, 2) for each in HOPS}
            rate = round(mib / statistics.median(seconds), 1)
            print(json.dumps({"direction": direction, "mib_per_second": rate, "processor_seconds_per_gib": used}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forwarding", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mib", type=int, default=256, help="MiB to move at once")
    parser.add_argument("--rounds", type=int, default=3, help="how often each direction is measured")
    parser.add_argument("--only", choices=list(DIRECTIONS), help="one of the directions (default both)")
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ports", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role is None:
        asyncio.run(measure(given.mib, given.rounds, [given.only] if given.only else DIRECTIONS))
        return
    place = Place(given.root, {each: int(port) for each, _, port in (one.partition("=") for one in given.ports.split(","))})
    match given.role:
        case "guest":
            serve_guest(place.ports["guest"])
        case "plugin":
            asyncio.run(serve_plugin(place))
        case "virt-api":
            own = Files.in_directory(place.root / "virt-api")
            uvloop.run(serve_api(own, place.ports["virt-api"], "portforward", Forwarded(place.ports["virt-handler"], own)))
        case _:
            uvloop.run(serve_handler(place))


if __name__ == "__main__":
    main()
