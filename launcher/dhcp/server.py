"""The sockets for the guest's DHCP requests, one per bridge."""

from __future__ import annotations

import asyncio
import logging
import os
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
"""More than any client sends (Ethernet). Longer packets are cut, and malformed."""
TURN_PACKETS: Final = 16
"""Packets read before other tasks of the event loop get their turn."""
_NAME_BYTES: Final = 16
"""IFNAMSIZ"""


@dataclass(frozen=True, slots=True)
class Ports:
    """UDP ports of DHCP."""

    server: int = network.DHCP_SERVER_PORT
    client: int = network.DHCP_CLIENT_PORT


PORTS: Final = Ports()


@dataclass(frozen=True, slots=True)
class _Listener:
    """A socket that receives the guest's requests on a bridge."""

    socket: socket.socket
    descriptor: int
    bridge: str
    index: int
    """The bridge's interface index: the socket does not receive from a new bridge of the same name."""

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.descriptor)
        self.socket.close()


class Server:
    """DHCP server for the pod's guest, started by :meth:`serve`; a context manager that ends it."""

    def __init__(
        self,
        find: Callable[[messages.Machine, messages.Interface, socket.socket], Lease] = lease.of,
        bridge: Callable[[messages.Interface], str] = lease.bridge_of,
        ports: Ports = PORTS,
    ) -> None:
        """Only store the settings.

        Args:
            find: returns the lease of an interface.
            bridge: returns the name of an interface's bridge.
            ports: of server and guest.
        """
        self._find = find
        self._bridge = bridge
        self._ports = ports
        self._listeners: dict[str, _Listener] = {}
        """By the interface's name."""
        self._machine: messages.Machine | None = None
        self._status = messages.DhcpStatus()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        for name in tuple(self._listeners):
            self._listeners.pop(name).close()
        self._machine = None

    def serve(self, machine: messages.Machine) -> None:
        """Start to answer the guest, on interfaces with DHCP that are not served yet.

        Raises:
            OSError: virt-handler has not prepared the pod's network, or another server has the port.
        """
        self._machine = machine
        for each in lease.with_dhcp(machine):
            if each.name not in self._listeners:
                self._listeners[each.name] = self._listen(machine, each)

    def mend(self) -> messages.DhcpStatus:
        """Restart the server on each bridge where it stopped receiving, and return its status.

        A guest keeps its infinite lease. It notices only if it sends a request meanwhile.
        """
        machine = self._machine
        if machine is None:
            return self._status
        self._close_dead()  # close all first: a socket that lost its bridge blocks every other one
        restarts, problems = self._status.restarts, []
        for each in lease.with_dhcp(machine):
            if each.name in self._listeners:
                continue
            try:
                self._listeners[each.name] = self._listen(machine, each)
                restarts += 1
            except OSError as error:
                problems.append(error.strerror or str(error))
        self._status = messages.DhcpStatus(restarts, "; ".join(problems), self._status.cause)
        return self._status

    def _close_dead(self) -> None:
        for name, listener in tuple(self._listeners.items()):
            if cause := _dead(listener, self._ports.server):
                logger.warning("the guest's DHCP server is dead and is started again", extra={"interface": name, "cause": cause})
                self._listeners.pop(name).close()
                self._status = messages.DhcpStatus(self._status.restarts, "", cause)

    def _listen(self, machine: messages.Machine, interface: messages.Interface) -> _Listener:
        bridge = self._bridge(interface)
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            # Needs no privilege (Linux 5.7). Receives only the guest's requests, and sends only to it, regardless of routes.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, bridge.encode())
            made.bind(("", self._ports.server))
            listener = _Listener(made, made.fileno(), bridge, socket.if_nametoindex(bridge))
            found = self._find(machine, interface, made)
        except OSError as error:
            made.close()
            raise OSError(error.errno, f"serve DHCP on {bridge}: {error.strerror}") from error
        asyncio.get_running_loop().add_reader(listener.descriptor, _answer_some, made, found, self._ports.client)
        return listener


def _dead(listener: _Listener, server_port: int) -> str:
    """Return why the listener receives nothing any more, or an empty string."""
    try:
        index = socket.if_nametoindex(listener.bridge)
    except OSError:
        return f"{listener.bridge} is gone"
    if index != listener.index:
        return f"{listener.bridge} was made anew"
    try:
        error = listener.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        bound = listener.socket.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _NAME_BYTES).rstrip(b"\0").decode()
        port = listener.socket.getsockname()[1]
    except OSError as failed:
        return f"its socket is gone: {failed.strerror}"
    if error:
        return f"its socket failed: {os.strerror(error)}"
    return "" if (bound, port) == (listener.bridge, server_port) else "its socket was taken off the bridge"


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
        except OSError as error:  # like a lost packet: the guest repeats its request
            logger.debug("a DHCP answer was not sent", extra={"error": str(error)})
