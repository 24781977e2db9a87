"""What ``make bench-devices`` measures besides devices.

- **writes**: versions of the machine's object while a verb runs.
- **suspension**: seconds of ``kubectl virt suspend --wait`` and ``resume --wait`` of a guest with 1 GiB of written memory.
- **echo**: milliseconds from a line to the guest's answer, in the pod and through kube-apiserver, in turn.
- **rates**: one TCP connection to a Linux guest, by ``kubectl virt port-forward`` and ``kubectl port-forward``, in turn; then to a program
  in the guest's pod, with the servers' processor time.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Protocol

from websockets.asyncio.client import ClientConnection

from apiserver.apis.virt.places import layout
from apiserver.kubectl import access, streams
from apiserver.kubectl.access import Selection
from benchmarks import pod_peer
from benchmarks.gauges import MIB, START_SECONDS, started
from tests.cluster import processes
from tests.cluster.kube import Kubectl, console, forwarded, port_of_guest
from tests.cluster.manifests import linux_vm, shared_claim, tiny_vm

MACHINE: Final = "bench-verbs"
LINUX: Final = "bench-rates"
CLAIM: Final = "bench-memory"
FILLED_MIB: Final = 1024
PORT: Final = 5300
CHUNK: Final = 256 << 10
FILLING_SECONDS: Final = 1.0
OURS: Final = "kubectl virt port-forward"
Rates = dict[str, dict[str, list[float]]]
"""MiB per second by program and direction."""
SETTLED_SECONDS: Final = 3.0
VERBS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("pause", "unpause", "reset", "nmi", "softreboot"), ()),
    "sendkey": ("--keys", "KEY_A"),
    **dict.fromkeys(("suspend", "resume", "stop", "start", "poweroff"), ()),
}
"""Verbs with their flags, in an order in which each applies."""


def machine(memory_mib: int, run: str) -> dict[str, Any]:
    manifest = tiny_vm(MACHINE, run=run, managedSave={"claimName": CLAIM})
    manifest["spec"]["domain"]["memory"] = {"guest": f"{memory_mib}Mi"}
    return manifest


def seconds_of(kubectl: Kubectl, *command: str) -> float:
    began = time.monotonic()
    kubectl("virt", *command, timeout=START_SECONDS)
    return time.monotonic() - began


def writes(kubectl: Kubectl) -> dict[str, int]:
    found = {}
    with _versions(kubectl) as versions:
        for verb, flags in VERBS.items():
            before = versions()
            kubectl("virt", verb, MACHINE, *flags, "--wait", timeout=START_SECONDS)
            time.sleep(SETTLED_SECONDS)  # for the last report of the guest's status
            found[verb] = versions() - before
            print(f"  {verb}: {found[verb]} writes", file=sys.stderr)
    return found


@contextlib.contextmanager
def _versions(kubectl: Kubectl) -> Iterator[Callable[[], int]]:
    command = kubectl.command("get", "vm", MACHINE, "--watch", "-o", r"jsonpath={.metadata.resourceVersion}{'\n'}")
    with (
        tempfile.TemporaryFile() as seen,
        subprocess.Popen(command, env=kubectl.environment, stdout=seen) as watch,
    ):
        while not seen.tell():
            seen.seek(0, 2)
            time.sleep(0.1)
        try:
            yield lambda: _lines(seen.fileno())
        finally:
            watch.terminate()


def _lines(descriptor: int) -> int:
    return len(set(os.pread(descriptor, 1 << 20, 0).split()))


def screenshots(kubectl: Kubectl, count: int) -> list[float]:
    path = f"/apis/kubevirt.io/v1alpha1/namespaces/{kubectl.namespace}/virtualmachines/{MACHINE}/screenshot"
    taken = []
    for _ in range(count):
        began = time.monotonic()
        kubectl("get", "--raw", path)
        taken.append(time.monotonic() - began)
    return taken


class Link(Protocol):
    """An open connection to a guest's console."""

    async def send(self, data: bytes) -> None:
        """Type into the console."""

    async def receive(self) -> bytes:
        """Return the next bytes of console output."""


class Own:
    """A Link through virt-launcher's socket in the pod."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Type into the console."""
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        """Return the next bytes of console output; empty at its end."""
        return await self._reader.read(1 << 16)


class Stream:
    """A Link through the websocket of the stream ``console``, already open."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, data: bytes) -> None:
        """Type into the console."""
        await self._connection.send(data)

    async def receive(self) -> bytes:
        """Return the next bytes of console output. Raises the websocket's ConnectionClosed at its end."""
        message = await self._connection.recv()
        return message if isinstance(message, bytes) else message.encode()


async def echo(link: Link, word: str) -> float:
    began, heard = time.monotonic(), b""
    await link.send(f"echo {word}\n".encode())
    async with asyncio.timeout(60):
        while word.encode() not in heard:
            heard += await link.receive()
    return (time.monotonic() - began) * 1000


async def echoes(kubectl: Kubectl, count: int) -> dict[str, list[float]]:
    (pod,) = kubectl.json("get", "pods", "-l", f"vm.kubevirt.io/name={MACHINE}", "--field-selector=status.phase=Running")["items"]
    process = min(processes.of_pod(pod))
    reader, writer = await asyncio.open_unix_connection(f"/proc/{process}/root{layout.RUN_DIRECTORY}/{layout.CONSOLE_SOCKET}")
    way = await access.load(Selection(kubeconfig=str(kubectl.kubeconfig), namespace=kubectl.namespace))
    async with streams.opened(way, MACHINE, "console") as connection:
        links: dict[str, Link] = {"own": Own(reader, writer), "through kube-apiserver": Stream(connection)}
        for name, link in links.items():
            await echo(link, f"first-{len(name)}")
        found: dict[str, list[float]] = {name: [] for name in links}
        for number in range(count):
            for name, link in links.items():
                found[name].append(await echo(link, f"{len(name)}-{number}."))
    writer.close()
    for name, each in found.items():
        print(f"  echo, {name}: {statistics.median(each):.1f} ms", file=sys.stderr)
    return found


def moved(port: int, direction: str, seconds: float) -> float:
    """Return the MiB per second that one connection moves from (``down``) or to (``up``) ``gauge serve``, once all buffers are full."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        link.sendall(b"r" if direction == "down" else b"s")
        room = bytearray(CHUNK)
        step = partial(link.recv_into, room) if direction == "down" else partial(link.send, room)
        _count(step, FILLING_SECONDS)
        began = time.monotonic()
        return _count(step, seconds) / MIB / (time.monotonic() - began)


def _count(step: Callable[[], int], seconds: float) -> int:
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        if not (done := step()):
            raise ConnectionError("the connection ended early")
        count += done
    return count


def rates(kubectl: Kubectl, pod: str, port: int, rounds: int, seconds: float) -> Rates:
    ways: dict[str, Callable[[], AbstractContextManager[int]]] = {
        OURS: lambda: port_of_guest(kubectl, LINUX, str(port)),
        "kubectl port-forward": lambda: forwarded(kubectl, f"pod/{pod}", port),
    }
    found: Rates = {way: {"down": [], "up": []} for way in ways}
    for _ in range(rounds):
        for way, opened in ways.items():
            for direction, measured in found[way].items():
                with opened() as local:
                    measured.append(moved(local, direction, seconds))
                print(f"  {way}: {direction} {measured[-1]:.1f} MiB/s", file=sys.stderr)
    return found


def costs(kubectl: Kubectl, node: str, seconds: float) -> dict[str, dict[str, float]]:
    """Return, by direction (``down``, ``up``) and then by server, the processor seconds per GiB that kubectl virt port-forward moves.

    ``pod_peer.serving`` must run.
    """
    found, servers = {}, pod_peer.servers(kubectl, node)
    for direction in ("down", "up"):
        with port_of_guest(kubectl, LINUX, str(pod_peer.PORT)) as local:
            before = pod_peer.seconds_of(servers)
            rate = moved(local, direction, seconds)
        gib = rate * (seconds + FILLING_SECONDS) / 1024
        found[direction] = {name: (after - before[name]) / gib for name, after in pod_peer.seconds_of(servers).items()}
    return found


def ports(kubectl: Kubectl, rounds: int, seconds: float = 5) -> dict[str, Any]:
    """Return the rates of kubectl port-forward and of ours, to the guest and to its pod, and the servers' processor time for ours."""
    with started(kubectl, linux()) as vm:
        name, node = vm["status"]["podName"], vm["status"]["nodeName"]
        with console(kubectl, LINUX) as guest:
            guest.run(f"(gauge serve {PORT} >/dev/null 2>&1 &)")
        to_guest = rates(kubectl, name, PORT, rounds, seconds)
        with pod_peer.serving(kubectl.json("get", "pod", name)):
            to_pod = rates(kubectl, name, pod_peer.PORT, rounds, seconds)
            used = costs(kubectl, node, seconds)
    return ports_report(to_guest, to_pod, used)


def ports_report(to_guest: Rates, to_pod: Rates, used: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    ours, theirs = (_medians(each) for each in to_guest.values())
    return {
        "port_mib_per_second": {way: _medians(both) for way, both in to_guest.items()},
        "port_ratio": {each: round(ours[each] / theirs[each], 2) for each in ours},
        "port_of_pod_mib_per_second": {way: _medians(both) for way, both in to_pod.items()},
        "port_of_pod_processor_seconds_per_gib": {
            direction: {name: round(each, 2) for name, each in of.items()} for direction, of in used.items()
        },
    }


def _medians(both: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {direction: round(statistics.median(each), 1) for direction, each in both.items()}


def linux() -> dict[str, Any]:
    manifest = copy.deepcopy(linux_vm(LINUX))
    manifest["spec"]["domain"]["devices"] |= {"graphics": [], "interfaces": [{"name": "default", "type": "masquerade"}]}
    return manifest


def measure(kubectl: Kubectl, rounds: int, *, seconds: float = 5) -> dict[str, Any]:
    kubectl.create(shared_claim(CLAIM))
    suspended: dict[str, list[float]] = {"suspend": [], "resume": []}
    with started(kubectl, machine(FILLED_MIB + 128, f"fill={FILLED_MIB}"), f"filled {FILLED_MIB}"):
        for _ in range(rounds):
            for verb, taken in suspended.items():
                taken.append(seconds_of(kubectl, verb, MACHINE, "--wait"))
                print(f"  {verb} of {FILLED_MIB} MiB: {taken[-1]:.1f} s", file=sys.stderr)
    with started(kubectl, machine(128, "")):
        pictures, answered = screenshots(kubectl, 20), asyncio.run(echoes(kubectl, 200))
        written = writes(kubectl)
    return {**report(suspended, pictures, answered, written), **ports(kubectl, rounds, seconds)}


def report(
    suspended: Mapping[str, Sequence[float]],
    pictures: Sequence[float],
    answered: Mapping[str, Sequence[float]],
    written: Mapping[str, int],
) -> dict[str, Any]:
    return {
        "suspension_of_1_gib_seconds": {verb: round(statistics.median(each), 2) for verb, each in suspended.items()},
        "screenshot_seconds": round(statistics.median(pictures), 3),
        "echo_milliseconds": {
            way: {"median": round(statistics.median(each), 2), "p99": round(statistics.quantiles(each, n=100)[98], 2)}
            for way, each in answered.items()
        },
        "writes": dict(written),
    }
