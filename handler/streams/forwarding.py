"""Connections to ports of guests, from the node's network as probes make them.

The destination is an address that virt-handler gave the guest's pod, never one that a client or guest names.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import forms
from apiserver.apis.virt.places.streams import Forward
from handler.streams.pipe import AHEAD_BYTES

DIAL_SECONDS: Final = 7.0
"""Less than virt-api's time for the whole dial."""

MakeSocket = Callable[[socket.AddressFamily, socket.SocketKind], socket.socket]
"""Makes a socket of the node's network. Raises OSError."""


class Unanswered(Exception):
    """The guest does not accept the connection; the message says why, for users."""


def targets(addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses that can be a pod's, without loopback and the like, which lead elsewhere from the node."""
    return tuple(each for each in addresses if forms.pod_ip(each) is not None)


async def connect(addresses: Sequence[str], forward: Forward, make: MakeSocket) -> socket.socket:
    """Return a connected, non-blocking socket to the port, at the first address that accepts. Raises Unanswered if none does."""
    why = "the guest has no address in the pod's network"
    kind = socket.SOCK_STREAM if forward.protocol == "tcp" else socket.SOCK_DGRAM
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            for address in targets(addresses):
                try:
                    return await _connected(make(socket.AF_INET6 if ":" in address else socket.AF_INET, kind), address, forward.port)
                except OSError as error:
                    why = os.strerror(error.errno) if error.errno else type(error).__name__
    except TimeoutError:
        why = f"no answer within {DIAL_SECONDS:g} s"
    raise Unanswered(why)


async def _connected(made: socket.socket, address: str, port: int) -> socket.socket:
    with descriptors.on_error(made.close):
        made.settimeout(0)
        await asyncio.get_running_loop().sock_connect(made, (address, port))
    return made


async def tcp(made: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return asyncio's streams of a connected TCP socket."""
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return await asyncio.open_connection(sock=made, limit=AHEAD_BYTES)
