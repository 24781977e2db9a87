"""Servers of disks to which QEMU connects itself: whether they answer, and what is done for a guest whose server is back.

QEMU connects again by itself. What it does not do is to say that nobody answers while the guest's requests wait, and to let a guest go on
that was stopped because they failed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.hardware import disks, network_disks, plugin_disks
from launcher.domain.disks import names_by_target
from launcher.domain.states import State
from launcher.hypervisor.port import NO_SPACE
from launcher.main import files, known
from launcher.main.refusal import RequestRefused
from launcher.main.suspension import Suspension
from launcher.main.watching import Watch

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
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


async def require(specification: Mapping[str, Any]) -> None:
    """Return if each disk of a server has one that answers.

    Raises:
        ServersSilent: some have none.
    """
    if silent := (*await _silent(endpoints_of(specification)), *_unheard(sockets_of(specification))):
        raise ServersSilent(silent)


def endpoints_of(specification: Mapping[str, Any]) -> Endpoints:
    """Return where the servers of the machine's disks are."""
    return {str(each["name"]): network_disks.endpoints(each) for each in disks.defaulted(specification) if network_disks.is_network(each)}


def sockets_of(specification: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the sockets in the pod at which plugins serve disks, by the disk's name."""
    named = {str(each["name"]): plugin_disks.served(each) for each in disks.defaulted(specification)}
    return {name: plugin_disks.path(name, "nbd") for name, found in named.items() if found is not None and found.protocol == "nbd"}


def _unheard(sockets: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of those at which nobody listens."""
    return tuple(name for name, path in sockets.items() if not _listens(path))


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as connection:
        try:
            connection.connect(path)
        except BlockingIOError:  # it has more connections waiting than it takes at once
            return True
        except OSError:
            return False
    return True


async def _silent(endpoints: Endpoints) -> tuple[str, ...]:
    """Return the names of those of which no server answers."""
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(_any_answers(each)) for name, each in endpoints.items()}
    return tuple(name for name, task in tasks.items() if not task.result())


async def _any_answers(endpoints: Iterable[tuple[str, int]]) -> bool:
    for host, port in endpoints:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, UnicodeError):  # a TimeoutError is one; the other is of names that IDNA does not have
            continue
        writer.close()
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


def _tables() -> list[str]:
    found = []
    for path in CONNECTIONS:
        try:
            found.append(Path(path).read_text())
        except OSError:  # a node without IPv6 has no such table
            continue
    return found


class DiskServers:
    """Looks at the servers of the domain's disks."""

    def __init__(self, watch: Watch, suspension: Suspension) -> None:
        self._watch = watch
        self._record = watch.record
        self._suspension = suspension

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Take in which servers do not answer, and let a guest go on that was stopped because one did not."""
        machine = self._record.known.machine
        if machine is None or self._record.known.domain is None or not self._record.known.domain.active:
            return
        endpoints, sockets = endpoints_of(machine.domain), sockets_of(machine.domain)
        if not endpoints and not sockets:
            return
        silent = (*await _silent(disconnected(endpoints, await asyncio.to_thread(_tables))), *_unheard(sockets))
        self._record.take(known.servers_silent, silent)
        if self._may_go_on(machine.domain, (endpoints.keys() | sockets.keys()) - set(silent)):
            try:
                await self._suspension.resume()
            except RequestRefused as refused:  # QEMU begins to connect when a request comes, and has that one fail
                logger.debug("the guest does not go on yet", extra={"reason": str(refused)})

    def _may_go_on(self, specification: Mapping[str, Any], answering: frozenset[str] | set[str]) -> bool:
        """Return whether what stopped the guest was the servers of disks, and all of them answer."""
        seen = self._record.known.domain
        if seen is None or seen.state is not State.PAUSED or not seen.disk_errors or self._record.known.leaving is not None:
            return False
        if all(error == NO_SPACE for _, error in seen.disk_errors):
            return False  # the server answers, but has no room: that is tried less often (launcher.main.free_space)
        names = names_by_target(specification)
        return {names.get(target) for target, _ in seen.disk_errors} <= answering
