"""Servers of disks to which QEMU connects itself: where they are, and whether they answer."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.hardware import disks, network_disks, plugin_disks
from launcher.main.disks import files

ANSWER_SECONDS: Final = 5.0
"""Of a server, to take a connection; that of a name server is in it."""
CONNECTIONS: Final = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
"""Connections of the pod, of which QEMU has one to the server of each such disk. The guest's own are none of them."""
_ESTABLISHED: Final = "01"

Endpoints = Mapping[str, tuple[tuple[str, int], ...]]
"""By name of the disk, hosts and ports of which any will do."""


class ServersSilent(files.NotReady):
    """Nobody answers where disks of the machine are; that may change."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names, "; ".join(f"disk {name!r}: its server does not answer" for name in names))


class Network:
    """The pod's network, by which servers are reached."""

    async def answers(self, host: str, port: int) -> bool:
        """Return whether somebody takes a connection there."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, UnicodeError):  # a TimeoutError is one; the other is of names that IDNA does not have
            return False
        writer.close()
        return True

    def listens(self, path: str) -> bool:
        """Return whether somebody listens at a socket in the pod."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as connection:
            try:
                connection.connect(path)
            except BlockingIOError:  # it has more connections waiting than it takes at once
                return True
            except OSError:
                return False
        return True

    def connections(self) -> list[str]:
        """Return the kernel's tables of the pod's TCP connections."""
        found = []
        for path in CONNECTIONS:
            try:
                found.append(Path(path).read_text())
            except OSError:  # a node without IPv6 has no such table
                continue
        return found


NETWORK: Final = Network()


async def require(specification: Mapping[str, Any], network: Network) -> None:
    """Return if each disk of a server has one that answers.

    Raises:
        ServersSilent: some have none.
    """
    endpoints, sockets = endpoints_of(specification), sockets_of(specification)
    if silent := (*await without_answer(endpoints, network), *without_listener(sockets, network)):
        raise ServersSilent(silent)


def endpoints_of(specification: Mapping[str, Any]) -> Endpoints:
    """Return where the servers of the machine's disks are."""
    return {str(each["name"]): network_disks.endpoints(each) for each in disks.defaulted(specification) if network_disks.is_network(each)}


def sockets_of(specification: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the sockets in the pod at which plugins serve disks, by the disk's name."""
    named = {str(each["name"]): plugin_disks.served(each) for each in disks.defaulted(specification)}
    return {name: plugin_disks.path(name, "nbd") for name, found in named.items() if found is not None and found.protocol == "nbd"}


def without_listener(sockets: Mapping[str, str], network: Network) -> tuple[str, ...]:
    """Return the names of those at which nobody listens."""
    return tuple(name for name, path in sockets.items() if not network.listens(path))


async def without_answer(endpoints: Endpoints, network: Network) -> tuple[str, ...]:
    """Return the names of those of which no server answers."""
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(_any_answers(each, network)) for name, each in endpoints.items()}
    return tuple(name for name, task in tasks.items() if not task.result())


async def _any_answers(endpoints: Iterable[tuple[str, int]], network: Network) -> bool:
    for host, port in endpoints:
        if await network.answers(host, port):
            return True
    return False


def disconnected(endpoints: Endpoints, tables: Iterable[str]) -> Endpoints:
    """Return those of which the pod may have no connection; ``tables`` are the texts of :data:`CONNECTIONS`.

    Names of hosts have addresses that only a name server knows, so there have to be as many connections to a port as there are disks of it.
    """
    there = Counter(port for table in tables for port in _remote_ports(table))
    ports = {name: frozenset(port for _, port in each) for name, each in endpoints.items()}
    wanted = Counter(ports.values())
    return {name: each for name, each in endpoints.items() if each and sum(there[port] for port in ports[name]) < wanted[ports[name]]}


def _remote_ports(table: str) -> Iterable[int]:
    for line in table.splitlines()[1:]:
        match line.split():
            case [_, _, remote, state, *_] if state == _ESTABLISHED:
                yield int(remote.rpartition(":")[2], 16)
