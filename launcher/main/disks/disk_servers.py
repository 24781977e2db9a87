"""Servers of disks to which QEMU connects: their addresses, and whether they answer."""

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
"""To connect, including name resolution."""
CONNECTIONS: Final = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
"""QEMU has one to each disk's server; the guest's are not listed."""
_ESTABLISHED: Final = "01"

Endpoints = Mapping[str, tuple[tuple[str, int], ...]]
"""Alternative hosts and ports, by the disk's name."""


class ServersUnreachable(files.NotReady):
    """Servers of the machine's disks do not answer, which may change."""

    def __init__(self, names: tuple[str, ...], unresolved: tuple[str, ...] = ()) -> None:
        why = dict.fromkeys(unresolved, "its server's name does not resolve")
        super().__init__(names, "; ".join(f"disk {name!r}: {why.get(name, 'its server does not answer')}" for name in names), unresolved)


class Network:
    """The pod's network, which leads to the servers."""

    async def answers(self, host: str, port: int) -> bool:
        """Return whether a server accepts a connection within ``ANSWER_SECONDS``."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, UnicodeError):  # UnicodeError: host names outside of IDNA
            return False
        writer.close()
        return True

    async def resolves(self, host: str) -> bool:
        """Return whether a host name has an address, within ``ANSWER_SECONDS``."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await asyncio.get_running_loop().getaddrinfo(host, None)
        except (OSError, UnicodeError):
            return False
        return True

    def listens(self, path: str) -> bool:
        """Return whether a process listens at a unix socket in the pod."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as connection:
            try:
                connection.connect(path)
            except BlockingIOError:  # its queue is full
                return True
            except OSError:
                return False
        return True

    def connections(self) -> list[str]:
        """Return the texts of the kernel's tables of the pod's TCP connections."""
        found = []
        for path in CONNECTIONS:
            try:
                found.append(Path(path).read_text())
            except OSError:  # nodes without IPv6 lack one table
                continue
        return found


NETWORK: Final = Network()


async def require(specification: Mapping[str, Any], network: Network) -> None:
    """Raise ServersUnreachable unless each network disk's server answers, and a process listens at each plugin's socket."""
    endpoints, sockets = endpoints_of(specification), sockets_of(specification)
    silent = await without_answer(endpoints, network)
    if unreachable := (*silent, *without_listener(sockets, network)):
        raise ServersUnreachable(unreachable, await _without_address(silent, endpoints, network))


def endpoints_of(specification: Mapping[str, Any]) -> Endpoints:
    """Return the addresses of the disks' servers, by the disk's name."""
    return {str(each["name"]): network_disks.endpoints(each) for each in disks.defaulted(specification) if network_disks.is_network(each)}


def sockets_of(specification: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the pod's sockets at which plugins serve disks by NBD, by the disk's name."""
    named = {str(each["name"]): plugin_disks.served(each) for each in disks.defaulted(specification)}
    return {name: plugin_disks.path(name, "nbd") for name, found in named.items() if found is not None and found.protocol == "nbd"}


def without_listener(sockets: Mapping[str, str], network: Network) -> tuple[str, ...]:
    """Return the names of disks with no process at their socket."""
    return tuple(name for name, path in sockets.items() if not network.listens(path))


async def without_answer(endpoints: Endpoints, network: Network) -> tuple[str, ...]:
    """Return the names of disks with no answering server at any of their addresses."""
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(_any_answers(each, network)) for name, each in endpoints.items()}
    return tuple(name for name, task in tasks.items() if not task.result())


async def _without_address(names: tuple[str, ...], endpoints: Endpoints, network: Network) -> tuple[str, ...]:
    """Return which of these disks have only servers with names that do not resolve."""
    async with asyncio.TaskGroup() as group:
        tasks = {host: group.create_task(network.resolves(host)) for host in {host for name in names for host, _ in endpoints[name]}}
    return tuple(name for name in names if not any(tasks[host].result() for host, _ in endpoints[name]))


async def _any_answers(endpoints: Iterable[tuple[str, int]], network: Network) -> bool:
    for host, port in endpoints:
        if await network.answers(host, port):
            return True
    return False


def disconnected(endpoints: Endpoints, tables: Iterable[str]) -> Endpoints:
    """Return those ``endpoints`` that may have no connection; ``tables`` are the texts of :data:`CONNECTIONS`.

    Host names have unknown addresses, so this counts ports: a port needs as many connections as disks use it.
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
