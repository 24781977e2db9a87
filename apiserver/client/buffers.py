"""The kernel's buffers of a connection, which grow to megabytes by default and count as memory of the pod."""

from __future__ import annotations

import asyncio
import socket


def narrow(transport: asyncio.BaseTransport | None, size: int) -> None:
    """Limit the kernel's buffers to ``size`` bytes each way (Linux doubles it, socket(7)); ignores a transport without socket.

    A peer at a round trip of a millisecond still gets ``size`` bytes per millisecond.
    """
    connection: socket.socket | None = None if transport is None else transport.get_extra_info("socket")
    if connection is not None:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            connection.setsockopt(socket.SOL_SOCKET, option, size)
