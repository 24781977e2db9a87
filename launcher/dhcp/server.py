"""The sockets for the guest's DHCP requests, one per bridge."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from apiserver.apis.virt.places import network
from launcher.dhcp import lease
from launcher.dhcp.answers import Lease, answer
from launcher.protocol import messages

logger = logging.getLogger(__name__)

PACKET_BYTES: Final = 2048
"""More than any client sends. Longer packets are cut, and malformed."""
TURN_PACKETS: Final = 16
"""Packets read before other tasks get their turn."""


@dataclass(frozen=True, slots=True)
class Ports:
    """UDP ports of DHCP."""

    server: int = network.DHCP_SERVER_PORT
    client: int = network.DHCP_CLIENT_PORT


PORTS: Final = Ports()


class Server:
    """DHCP server for the pod's guest; a context manager that ends it."""

    def __init__(
        self,
        find: Callable[[messages.Machine, messages.Interface, socket.socket], Lease] = lease.of,
        bridge: Callable[[messages.Interface], str] = lease.bridge_of,
        ports: Ports = PORTS,
    ) -> None:
        """Store the functions that return an interface's lease and bridge, and the ports."""
        self._find = find
        self._bridge = bridge
        self._ports = ports
        self._sockets: dict[str, socket.socket] = {}
        """By the interface's name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        for name in tuple(self._sockets):
            self._close(name)

    def serve(self, machine: messages.Machine) -> None:
        """Answer the guest on exactly the machine's interfaces with DHCP; one that is served already keeps its lease.

        Raises:
            OSError: virt-handler has not prepared the pod's network, or another server has the port.
        """
        wanted = lease.with_dhcp(machine)
        for name in self._sockets.keys() - {each.name for each in wanted}:
            self._close(name)
        for each in wanted:
            if each.name not in self._sockets:
                self._sockets[each.name] = self._listen(machine, each)

    def _close(self, name: str) -> None:
        found = self._sockets.pop(name)
        asyncio.get_running_loop().remove_reader(found.fileno())
        found.close()

    def _listen(self, machine: messages.Machine, interface: messages.Interface) -> socket.socket:
        bridge = self._bridge(interface)
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            # Needs no privilege (Linux 5.7). Receives only the guest's requests, and sends only to it, regardless of routes.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, bridge.encode())
            made.bind(("", self._ports.server))
            found = self._find(machine, interface, made)
        except OSError as error:
            made.close()
            raise OSError(error.errno, f"serve DHCP on {bridge}: {error.strerror}") from error
        asyncio.get_running_loop().add_reader(made.fileno(), _answer_some, made, found, self._ports.client)
        return made


def _answer_some(server: socket.socket, given: Lease, client_port: int) -> None:
    for _ in range(TURN_PACKETS):
        try:
            data = server.recv(PACKET_BYTES)
        except OSError:  # no more packets (EAGAIN), or the bridge went down
            return
        if (said := answer(data, given)) is None:
            continue
        try:
            server.sendto(said.data, (said.destination, client_port))
        except OSError as error:
            logger.debug("cannot send a DHCP answer", extra={"error": str(error)})
