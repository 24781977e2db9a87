"""The socket on which the guest's DHCP requests arrive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final, Self

from apiserver.apis.virt import network
from launcher.dhcp import lease
from launcher.dhcp.answers import Lease, answer
from launcher.protocol import messages

logger = logging.getLogger(__name__)

PACKET_BYTES: Final = 2048
"""More than any client sends (Ethernet); what is longer is cut, and then malformed."""
TURN_PACKETS: Final = 16
"""Read before others have their turn in the event loop."""


class Server:
    """DHCP for the pod's guest, from :meth:`serve` on; a context manager that ends it."""

    def __init__(self, find: Callable[[messages.Machine, socket.socket], Lease] = lease.of) -> None:
        self._find = find
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def serve(self, machine: messages.Machine) -> None:
        """Answer the guest from now on; nothing to do for a machine that is not on its pod's network, or the second time.

        Raises:
            OSError: virt-handler has not prepared the pod's network, or somebody else serves DHCP there.
        """
        if self._socket is not None or not lease.is_served(machine):
            return
        with contextlib.ExitStack() as stack:
            made = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC))
            try:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                # Needs no privilege (Linux 5.7): requests of the guest alone, and answers to it, whatever the routes say.
                made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, network.BRIDGE.encode())
                made.bind(("", network.DHCP_SERVER_PORT))
                found = self._find(machine, made)
            except OSError as error:
                raise OSError(error.errno, f"serve DHCP on {network.BRIDGE}: {error.strerror}") from error
            stack.pop_all()
        self._socket = made
        asyncio.get_running_loop().add_reader(made, _answer_some, made, found)


def _answer_some(server: socket.socket, given: Lease) -> None:
    for _ in range(TURN_PACKETS):
        try:
            data = server.recv(PACKET_BYTES)
        except OSError:  # no more for now (EAGAIN), or the bridge went down
            return
        if (said := answer(data, given)) is None:
            continue
        try:
            server.sendto(said.data, (said.destination, network.DHCP_CLIENT_PORT))
        except OSError as error:  # as if it were lost on the way: the guest asks again
            logger.debug("a DHCP answer was not sent", extra={"error": str(error)})
